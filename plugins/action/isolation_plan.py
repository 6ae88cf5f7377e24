# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan what outsiders probe: first what is asked is checked, then hosts name their addresses, on the control node."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.module_utils._exposure.model import (
    AGENT,
    GATEWAY,
    Target,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.addressing import is_address
from ansible_collections.backendai.cluster.plugins.module_utils._model.port_ranges import parse_ranges
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import Problems
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.report import stints_of
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_results import why_silent
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction

TARGETS_RESULT = "__isolation_targets"
"""The variable of each agent and gateway that holds the result of ``isolation_host`` with ``phase: targets``."""

_INVENTORY = ("ansible_host", "agent_underlay_address")


class ActionModule(ControlAction):
    """The action ``backendai.cluster.isolation_plan``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        if self._task.args["state"] == "validated":
            return {**result, "changed": False, **_validated(self._task.args)}
        return {**result, "changed": False, **_planned(self._task.args, (task_vars or {})["hostvars"])}


def _validated(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is asked, with its defaults; all problems are one failure."""
    problems = Problems()
    _check_hosts(problems, args)
    rate = _whole_number(args.get("rate", 16000))
    if rate < 1:
        problems.refuse("firewall_probe_rate", args["rate"], "must be a whole number, at least 1")
    ports = str(args.get("ports") or "1-65535")
    try:
        parse_ranges(ports)
    except ValueError as error:
        problems.refuse("firewall_probe_ports", ports, str(error))
    path = str(args.get("path") or "")
    if path and not os.path.isdir(os.path.dirname(os.path.abspath(os.path.expanduser(path)))):
        problems.refuse("firewall_report_path", path, "must be in a folder that is there")
    if problems:
        raise AnsibleActionFail(str(problems))
    hosts = {kind: list(args[kind]) for kind in ("outsiders", "agents", "gateways")}
    ask = list(dict.fromkeys([*hosts["agents"], *hosts["gateways"]]))
    return {**hosts, "ask": ask, "ports": ports, "rate": rate}


def _check_hosts(problems: Problems, args: Mapping[str, Any]) -> None:
    option, pattern = "firewall_outsiders", args["pattern"]
    if not args["agents"]:
        problems.add("the inventory has no agents whose doors could be tried")
    if not args["outsiders"]:
        problems.refuse(option, pattern, "names no host of the inventory, and only from outside anything can be proven")
    for kind in ("agents", "gateways", "managers"):
        trusted = [name for name in args["outsiders"] if name in args[kind]]
        if trusted:
            problems.refuse(option, pattern, f"must not be of the {kind}, which are trusted: {', '.join(trusted)}")


def _whole_number(value: object) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() else 0


def _planned(args: Mapping[str, Any], hostvars: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the hosts that are probed, and the parts in which that is done."""
    targets = [_target(name, AGENT, hostvars[name]) for name in args["agents"]]
    targets += [_target(name, GATEWAY, hostvars[name]) for name in args["gateways"]]
    stints = stints_of(targets, parse_ranges(str(args.get("ports", "1-65535"))), int(args.get("rate", 16000)))
    return {
        "warnings": [f"{target.name}: {target.unread}." for target in targets if target.unread],
        "targets": [dataclasses.asdict(target) for target in targets],
        "stints": [dataclasses.asdict(stint) for stint in stints],
    }


def _target(name: str, kind: str, variables: Mapping[str, Any]) -> Target:
    """Return what is to be probed of a host; where it cannot be asked, what the inventory has of it."""
    reply = variables.get(TARGETS_RESULT) or {}
    if "addresses" in reply:
        data = {key: reply[key] for key in ("addresses", "udp_ports", "expected", "unread")}
        return Target.from_dict({"name": name, "kind": kind, **data})
    known = [str(variables[key]) for key in _INVENTORY if is_address(str(variables.get(key, "")))]
    unread = f"it cannot be asked for its addresses: {why_silent(reply)}"
    return Target(name, kind, dict.fromkeys(known, kind), unread=unread)
