# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Report what firewalls in report mode would have dropped, on the control node."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..module_utils._model.plain_data import from_plain
from ..plugin_utils._exposure.would_drop import HostTraffic, build_traffic_report, render_traffic
from ..plugin_utils._report.record import to_json
from ..plugin_utils.agent_results import describe_missing_result
from ..plugin_utils.control import ControlAction

RESULT = "__firewall_traffic"
"""The variable of each host that holds the result of ``firewall_traffic``."""


class ActionModule(ControlAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, args, hostvars = super().run(tmp, task_vars), self._task.args, (task_vars or {})["hostvars"]
        report = build_traffic_report([_host_traffic(name, hostvars[name]) for name in dict.fromkeys(args["hosts"])])
        self.write_report(str(args.get("path") or ""), to_json(report))
        self.show(render_traffic(report))
        return {**result, "changed": False, "report": report}


def _host_traffic(name: str, variables: Mapping[str, Any]) -> HostTraffic:
    found = variables.get(RESULT) or {}
    if "traffic" not in found:
        return HostTraffic(name, error=describe_missing_result(found))
    fields = {field.name for field in dataclasses.fields(HostTraffic)} & found.keys()
    return from_plain(HostTraffic, {"name": name, **{field: found[field] for field in fields}}, name)
