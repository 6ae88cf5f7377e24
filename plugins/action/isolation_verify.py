# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verify that only gateways can be reached, from outside and from inside of containers, in one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._model.printable import printable, printable_data
from ..module_utils._model.validation import ValidationError
from ..plugin_utils._exposure.inside import InsideResults, plan_inside_probes
from ..plugin_utils._exposure.probing import OUTSIDER, Probing
from ..plugin_utils._exposure.report import build_exposure_report, split_into_batches, summarize_error
from ..plugin_utils._exposure.request import (
    DEFAULTS,
    VARIABLES,
    IsolationHosts,
    IsolationRequest,
    parse_isolation_request,
)
from ..plugin_utils._exposure.table import render_report
from ..plugin_utils._report.record import to_json
from ..plugin_utils._run.outcome import Outcome
from ..plugin_utils.agent_program import AGENT, GATEWAY
from ..plugin_utils.folders_action import FoldersAction
from ..plugin_utils.host_request import coerce

OPTIONS: dict[str, dict[str, Any]] = {
    "probe_hosts": {"type": "str"},
    "ports": {"type": "str"},
    "rate": {"type": "int"},
    "path": {"type": "path"},
    "format": {"type": "str", "choices": ["table"]},
}


class ActionModule(FoldersAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        self.check_place(variables)
        options = coerce(OPTIONS, self._task.args)
        request = self._request(options, variables)
        report = self._verify(request, variables)
        if report is None:
            return {**result, "changed": False}
        self.write_report(request.path, to_json(report))
        if options["format"] == "table":
            self.show(render_report(report))
        else:
            result["report"] = printable_data(report)
        error = summarize_error(report)
        return {**result, "changed": False, **({"failed": True, "msg": printable(error)} if error else {})}

    def _request(self, options: Mapping[str, Any], variables: Mapping[str, Any]) -> IsolationRequest:
        """Return the validated request: what the task does not say is in the variables of the playbook."""
        values, named = {}, {}
        for name, variable in VARIABLES.items():
            given = options[name] is not None
            own = self._templar.template(variables.get(variable, DEFAULTS[name]))
            values[name], named[name] = (options[name], name) if given else (own, variable)
        hosts = IsolationHosts(
            self.matched(values["probe_hosts"], variables),
            self.agents(None, variables),
            self.matching("gateway_group", "gateways", variables),
            self.matching("manager_group", "managers", variables),
        )
        try:
            return parse_isolation_request(values, hosts, named)
        except ValidationError as error:
            raise AnsibleActionFail(str(error)) from None

    def _verify(self, request: IsolationRequest, variables: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the report; in check mode, show the planned probes."""
        hosts, hostvars = request.hosts, variables["hostvars"]

        def shown(names: Sequence[str]) -> list[str]:
            return self.within_limit(names, variables)

        with self.calls_of((AGENT, GATEWAY, OUTSIDER), variables, Outcome(self.tell).take) as asks:
            of_agents, of_gateways, of_outsiders = asks
            probing = Probing(of_agents, of_gateways, of_outsiders, shown)
            targets = probing.read_targets(hosts.agents, hosts.gateways, hostvars)
            for target in targets:
                if target.unread:
                    self._display.warning(printable(f"{target.name}: {target.unread}."))
            batches = split_into_batches(targets, request.ports, request.rate)
            if self._task.check_mode:
                self.show(
                    f"{batch.target}: {', '.join(batch.addresses)}: TCP ports {batch.ports} would be probed."
                    for batch in batches
                )
                return None
            probed = probing.probe(hosts.probe_hosts, batches, request.rate)
            inside: InsideResults = probing.probe_inside(plan_inside_probes(targets, hosts.managers, hostvars), targets)
        folders = self.check_folders(hosts.agents, hosts.managers, variables)
        return build_exposure_report(targets, hosts.probe_hosts, probed, inside, folders)
