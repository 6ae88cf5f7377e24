# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take an agent out of service, or back into it."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._model.printable import printable
from ..module_utils._module import CONNECTION_OPTIONS
from ..plugin_utils._placement.unschedulable import join_names
from ..plugin_utils.host_action import HostAction

OPTIONS: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "reason": {"type": "str", "default": ""},
    "sessions_end_after": {"type": "int"},
}

MAX_SECONDS = 366 * 86400
"""The longest time until sessions end."""

MAX_REASON = 200
"""How many characters a reason may have: it is part of other sentences."""

SECONDS = 120


class ActionModule(HostAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        given = {**self.variables(CONNECTION_OPTIONS, "agent_", variables), **self._task.args}
        options = self.options({**CONNECTION_OPTIONS, **OPTIONS}, given)
        seconds, reason = options["sessions_end_after"], options["reason"]
        if seconds is not None and not 0 <= seconds <= MAX_SECONDS:
            raise AnsibleActionFail(f"sessions_end_after: {seconds} must be 0 to {MAX_SECONDS} seconds.")
        if len(reason) > MAX_REASON or not reason.isprintable():
            raise AnsibleActionFail(f"reason: it must be one line of at most {MAX_REASON} characters.")
        reply = self.call("cordon", {**options, "by": getpass.getuser()}, variables, SECONDS)
        self._display.display(printable(_summary(variables["inventory_hostname"], reply)))
        return {**result, **reply}


def _summary(agent: str, reply: Mapping[str, Any]) -> str:
    """Return what is now true of an agent, as a line."""
    if not reply["description"]:
        return f"{agent} takes new sessions."
    sessions = f"still there: {join_names(reply['sessions'])}" if reply["sessions"] else "no session is left on it"
    return f"{agent} takes no new sessions: {reply['description']}; {sessions}."
