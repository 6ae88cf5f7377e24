# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validate, plan and report an isolation check, on the control node."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, TypeVar

from ansible.errors import AnsibleActionFail

from ..module_utils._exposure.model import AGENT, GATEWAY, ProbeBatch, ProbedHost, ProbeReply, TargetsReply
from ..module_utils._model.addressing import is_address
from ..module_utils._model.errors import as_phrase
from ..module_utils._model.plain_data import DataError, from_plain, to_plain
from ..module_utils._model.port_ranges import parse_ranges
from ..module_utils._model.printable import printable
from ..module_utils._model.validation import ValidationErrors
from ..plugin_utils._exposure.inside import collect_inside_results, plan_inside_probes
from ..plugin_utils._exposure.policy_folders import (
    FolderResults,
    collect_folder_results,
    plan_folder_checks,
    read_plan,
)
from ..plugin_utils._exposure.report import ProbeResult, build_exposure_report, split_into_batches, summarize_error
from ..plugin_utils._exposure.table import render_report
from ..plugin_utils._report.record import to_json
from ..plugin_utils.agent_results import describe_missing_result
from ..plugin_utils.control import ControlAction

# The variable of each agent and gateway that holds the result of ``isolation_host`` with ``phase: targets``.
TARGETS_RESULT = "__isolation_targets"

# The variable of each probe host that holds the results with ``phase: probe``, one for each batch.
PROBE_RESULTS = "__isolation_probe"

# The loop variable of the playbook's loop over batches.
LOOP_VARIABLE = "batch"

Reply = TypeVar("Reply", TargetsReply, ProbeReply)

_INVENTORY = ("ansible_host", "agent_underlay_address")


class ActionModule(ControlAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, args, variables = super().run(tmp, task_vars), self._task.args, task_vars or {}
        if args["state"] == "validated":
            return {**result, "changed": False, **_validate(args)}
        if args["state"] == "planned":
            return {**result, "changed": False, **_plan_batches(args, variables["hostvars"])}
        if args["state"] == "folders_planned":
            planned = plan_folder_checks(args["managers"], args["agents"], variables["hostvars"])
            return {**result, "changed": False, **to_plain(planned)}
        if args["state"] == "folders_reported":
            found = _folders(args, variables["hostvars"])
            warnings = [*found.problems, *found.unprotected, *found.unread]
            return {**result, "changed": False, "warnings": [printable(f"{text}.") for text in warnings]}
        return {**result, "changed": False, **self._report(args, variables["hostvars"])}

    def _report(self, args: Mapping[str, Any], hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Show and write the ``report`` of the probes; in check mode, show the planned probes."""
        batches = [from_plain(ProbeBatch, batch, "batches") for batch in args["batches"]]
        if self._task.check_mode:
            self.show(
                f"{batch.target}: {', '.join(batch.addresses)}: TCP ports {batch.ports} would be probed."
                for batch in batches
            )
            return {}
        probe_hosts = list(args["probe_hosts"])
        probed = [probe for name in probe_hosts for probe in _probe_results(name, hostvars[name], batches)]
        targets = [from_plain(ProbedHost, target, "targets") for target in args["targets"]]
        inside = collect_inside_results(args["inside"], targets, hostvars)
        report = build_exposure_report(targets, probe_hosts, probed, inside, _folders(args, hostvars))
        self.write_report(str(args.get("path") or ""), to_json(report))
        self.show(render_report(report))
        error = summarize_error(report)
        if error:
            raise AnsibleActionFail(error)
        return {"report": report}


def _folders(args: Mapping[str, Any], hostvars: Mapping[str, Mapping[str, Any]]) -> FolderResults:
    return collect_folder_results(read_plan(args["folders"]), args["managers"], args["agents"], hostvars)


def _validate(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with their defaults. All problems are one failure."""
    problems = ValidationErrors()
    _check_hosts(problems, args)
    rate = _whole_number(args.get("rate", 16000))
    if rate < 1:
        problems.add_invalid("firewall_probe_rate", args["rate"], "must be a whole number, at least 1")
    ports = str(args.get("ports") or "1-65535")
    try:
        parse_ranges(ports)
    except ValueError as error:
        problems.add_invalid("firewall_probe_ports", ports, str(error))
    path = str(args.get("path") or "")
    if path and not os.path.isdir(os.path.dirname(os.path.abspath(os.path.expanduser(path)))):
        problems.add_invalid("firewall_report_path", path, "must be in an existing folder")
    if problems:
        raise AnsibleActionFail(str(problems))
    hosts = {kind: list(args[kind]) for kind in ("probe_hosts", "agents", "gateways", "managers")}
    to_read = list(dict.fromkeys([*hosts["agents"], *hosts["gateways"]]))
    return {**hosts, "to_read": to_read, "ports": ports, "rate": rate}


def _check_hosts(problems: ValidationErrors, args: Mapping[str, Any]) -> None:
    option, pattern = "firewall_probe_hosts", args["pattern"]
    if not args["agents"]:
        problems.add("the inventory has no agents to probe")
    if not args["probe_hosts"]:
        problems.add_invalid(
            option, pattern, "matches no host of the inventory; set it to untrusted hosts to probe from"
        )
    for kind in ("agents", "gateways", "managers"):
        trusted = [name for name in args["probe_hosts"] if name in args[kind]]
        if trusted:
            problems.add_invalid(option, pattern, f"must not include {kind}, which are trusted: {', '.join(trusted)}")


def _whole_number(value: object) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() else 0


def _plan_batches(args: Mapping[str, Any], hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the hosts to probe, and the batches of probes."""
    targets = [_probed_host(name, AGENT, hostvars[name]) for name in args["agents"]]
    targets += [_probed_host(name, GATEWAY, hostvars[name]) for name in args["gateways"]]
    batches = split_into_batches(targets, parse_ranges(str(args.get("ports", "1-65535"))), int(args.get("rate", 16000)))
    return {
        "warnings": [f"{target.name}: {target.unread}." for target in targets if target.unread],
        "targets": to_plain(targets),
        "batches": to_plain(batches),
        "inside": plan_inside_probes(targets, args["managers"], hostvars),
    }


def _probed_host(name: str, kind: str, variables: Mapping[str, Any]) -> ProbedHost:
    """Return the addresses to probe of a host; if it is unreachable, those of the inventory."""
    result = variables.get(TARGETS_RESULT) or {}
    reason = describe_missing_result(result)
    if "addresses" in result:
        try:
            reply = _parse_reply(TargetsReply, result)
            return ProbedHost(name, kind, **vars(reply))
        except DataError as error:
            reason = as_phrase(error)
    addresses = [str(variables[key]) for key in _INVENTORY if is_address(str(variables.get(key, "")))]
    unread = f"its addresses could not be read: {reason}"
    return ProbedHost(name, kind, dict.fromkeys(addresses, kind), unread=unread)


def _probe_results(probe_host: str, variables: Mapping[str, Any], batches: list[ProbeBatch]) -> list[ProbeResult]:
    """Return the result of each batch on a probing host, or its error."""
    loop = variables.get(PROBE_RESULTS) or {}
    tried = [result for result in loop.get("results", []) if LOOP_VARIABLE in result]
    results = {from_plain(ProbeBatch, result[LOOP_VARIABLE], LOOP_VARIABLE): result for result in tried}
    return [_batch_result(probe_host, batch, results.get(batch, loop)) for batch in batches]


def _batch_result(probe_host: str, batch: ProbeBatch, result: Mapping[str, Any]) -> ProbeResult:
    if "next_hops" not in result:
        return ProbeResult(probe_host, batch, failed=f"the probe failed: {describe_missing_result(result)}")
    try:
        reply = _parse_reply(ProbeReply, result)
    except DataError as error:
        return ProbeResult(probe_host, batch, failed=f"the probe failed: {as_phrase(error)}")
    return ProbeResult(probe_host, batch, **to_plain(reply))


def _parse_reply(kind: type[Reply], result: Mapping[str, Any]) -> Reply:
    """Return the reply in a task's result, which has other keys as well. Raises :class:`DataError`."""
    names = {field.name for field in dataclasses.fields(kind)}
    return from_plain(kind, {name: result[name] for name in names & result.keys()}, "its reply is damaged")
