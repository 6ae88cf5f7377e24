# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the actions on the control node share: variables in, records and tables out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.backendai.cluster.plugins.module_utils._core.decision import Readings

AGENT_RESULT = "__session_agent"
"""The variable of each agent that holds the result of ``agent_info``."""


class ControlAction(ActionBase):
    """An action that works on the control node alone: no connection is made, no module is sent."""

    _requires_connection = False
    TRANSFERS_FILES = False

    def session_variables(self, task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """Return all variables that begin with ``session_``, templated."""
        names = [name for name in task_vars if name.startswith("session_")]
        return {name: self._templar.template(task_vars[name]) for name in names}

    def readings(self, agents: list[str], task_vars: Mapping[str, Any]) -> Readings:
        """Return the facts of the agents, and why some have none; an agent that was not asked appears in neither."""
        facts, left_out = {}, {}
        for name in agents:
            result = task_vars["hostvars"][name].get(AGENT_RESULT)
            if result is None:
                continue
            if result.get("agent"):
                facts[name] = result["agent"]
            else:
                left_out[name] = str(result.get("unfit") or result.get("msg", "it gave no facts"))
        return Readings(facts, {name: " ".join(reason.split()).rstrip(".") for name, reason in left_out.items()})

    def warnings(self, readings: Readings) -> list[str]:
        """Return a warning for each agent that is left out."""
        return [f"{name} is left out: {reason}." for name, reason in readings.left_out.items()]

    def write(self, path: str, content: str) -> None:
        """Write a report on the control node, atomically; nothing in check mode, and for an empty path.

        A report says how things are, so writing it is no change. Raises :class:`AnsibleActionFail` where it cannot be
        written.
        """
        if not path or self._task.check_mode:
            return
        target, staged = os.path.abspath(os.path.expanduser(path)), ""
        try:
            handle, staged = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".session-")
            with os.fdopen(handle, "w") as stream:
                stream.write(content)
            os.chmod(staged, 0o644)
            os.replace(staged, target)
        except OSError as error:
            if os.path.exists(staged):
                os.unlink(staged)
            raise AnsibleActionFail(f"{path!r} cannot be written: {error.strerror}.") from None
