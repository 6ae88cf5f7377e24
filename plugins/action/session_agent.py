# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read or change the sessions of an agent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail

from ..module_utils._model.printable import printable
from ..module_utils._module import CAPACITY_OPTIONS, CONNECTION_OPTIONS
from ..plugin_utils._report.follow import Since, follow
from ..plugin_utils.host_action import HostAction
from ..plugin_utils.host_link import forks
from ..plugin_utils.removed_options import refuse_removed_options

# Timeout of each phase in seconds.
SECONDS = {"survey": 120, "reap": 600, "remove": 600, "wait": 90, "verify": 600, "logs": 300, "marker": 110}

# Options that are whole numbers: ansible-core 2.18 makes texts of them when they are templates.
NUMBERS = ("lines", "history_days")

# The variable with the logs of this agent that have been shown already.
LOGGED = "__session_logs"

# The results of failed phases, for phases that report their failure as a result.
FAILED_RESULTS: Mapping[str, Mapping[str, Any]] = {
    "survey": {"agent": None},
    "verify": {"parts": []},
    "logs": {"parts": []},
}


class ActionModule(HostAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        options = dict(self._task.args)
        phase = str(options.pop("phase"))
        try:
            options |= self.variables(CONNECTION_OPTIONS, "agent_", variables)
            options |= {name: int(options[name]) for name in NUMBERS if name in options}
            if phase == "survey":
                options["settings"] = self.variables(CAPACITY_OPTIONS, "agent_", variables)
            if phase == "follow":
                return {**result, "changed": False, **self._follow(options, variables)}
            reply = dict(refuse_removed_options(self.call(phase, options, variables, SECONDS[phase]), variables))
        except AnsibleActionFail as error:
            if phase not in FAILED_RESULTS:
                raise
            return {**result, "changed": False, **FAILED_RESULTS[phase], "error": str(error)}
        # What an agent says of itself.
        told = [f"{variables['inventory_hostname']}: {text}" for text in reply.pop("warnings", ())]
        if told:
            result["warnings"] = told
        for session_id, sentence in (reply.get("failures") or {}).items():
            result.setdefault("warnings", []).append(f"{session_id}: {sentence}")
        ended = {**(reply.get("sessions") or {}), **(reply.get("ends") or {})}
        for session_id, end in ended.items():
            lost = "; ".join(end.get("lost_output") or ())
            if lost:
                result.setdefault("warnings", []).append(f"{session_id}: output was lost: {lost}")
        failures = [reply["failed"] for reply in (reply.get("sessions") or {}).values() if "failed" in reply]
        if failures:
            raise AnsibleActionFail(" ".join(failures))
        return {"changed": False, **result, **reply}

    def _follow(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Show what the session's containers on this agent print, until they have ended or the run is interrupted."""
        agents = len(variables.get("ansible_play_hosts_all") or ())
        if agents > forks():
            raise AnsibleActionFail(
                f"the session has {agents} agents, of which {forks()} are followed: use --forks {agents}."
            )
        parts = [part for part in variables[LOGGED]["parts"] if part["id"] == options["session_id"]]

        def read(since: Since, lines: int) -> Mapping[str, Any] | None:
            request = {**options, "lines": lines, "since": dict(since)}
            return next(iter(self.call("logs", request, variables, SECONDS["logs"])["parts"]), None)

        def show(line: str) -> None:
            self._display.display(printable(line))

        if parts:
            follow(parts[0], read, show, _EndFile(options["session_id"]))
        return {}


class _EndFile:
    """A file that says to the workers of other agents that main1 has ended; Ansible removes it with its folder."""

    def __init__(self, session_id: str) -> None:
        self._path = Path(constants.DEFAULT_LOCAL_TMP) / f"ended-{session_id}"

    def is_set(self) -> bool:
        return self._path.exists()

    def set(self) -> None:
        self._path.touch()
