# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say what is open to outsiders, from what they found, on the control node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.module_utils._exposure.model import Stint, Target
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.report import Probed, error_of, report_of
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.table import lines
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import as_json
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_results import why_silent
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction

# The variable of each outsider that holds the results of ``isolation_host``, one for each stint.
PROBED = "__isolation_probe"

# What the loop over stints calls each of them.
LOOP_VARIABLE = "stint"


class ActionModule(ControlAction):
    """The action ``backendai.cluster.isolation_report``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args, hostvars = self._task.args, (task_vars or {})["hostvars"]
        targets = [Target.from_dict(one) for one in args["targets"]]
        stints = [Stint.from_dict(one) for one in args["stints"]]
        outsiders = list(args["outsiders"])
        if self._task.check_mode:
            for one in stints:
                self._display.display(
                    f"{one.target}: {', '.join(one.addresses)}: TCP ports {one.ports} would be tried."
                )
            return {**result, "changed": False}
        probed = [one for name in outsiders for one in _probed(name, hostvars[name], stints)]
        report = report_of(targets, outsiders, probed)
        self.write(str(args.get("path") or ""), as_json(report))
        for line in lines(report):
            self._display.display(line)
        error = error_of(report)
        if error:
            raise AnsibleActionFail(error)
        return {**result, "changed": False, "report": report}


def _probed(outsider: str, variables: Mapping[str, Any], stints: list[Stint]) -> list[Probed]:
    """Return what an outsider found in each stint, or why it could not try it."""
    said = variables.get(PROBED) or {}
    results = {Stint.from_dict(one[LOOP_VARIABLE]): one for one in said.get("results", []) if LOOP_VARIABLE in one}
    return [_one(outsider, stint, results.get(stint, said)) for stint in stints]


def _one(outsider: str, stint: Stint, result: Mapping[str, Any]) -> Probed:
    if "ways" not in result:
        return Probed(outsider, stint, failed=f"it could not be tried: {why_silent(result)}")
    found = {name: result[name] for name in ("answers", "ways", "missing", "unseen", "near")}
    return Probed(outsider, stint, **found)
