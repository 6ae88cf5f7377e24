# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Create, repair or end a session, from one task on the control node."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail

from ..plugin_utils._run.create import create
from ..plugin_utils._run.terminate import NotEndedError, terminate
from ..plugin_utils.run_request import CREATE, REPAIR, TERMINATE
from ..plugin_utils.session_action import RequestRefusedError, SessionAction

PURPOSES = {"present": CREATE, "repaired": REPAIR, "absent": TERMINATE}
"""The purposes of runs, by the state that they lead to."""


class ActionModule(SessionAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        self.check_place(variables)
        options = dict(self._task.args)
        state = options.pop("state", "present")
        if state not in PURPOSES:
            raise AnsibleActionFail(f"state: {state!r} must be one of {', '.join(PURPOSES)}.")
        try:
            running = self.run_for(PURPOSES[state], options, variables)
        except RequestRefusedError as error:
            return {**result, "failed": True, "changed": False, "refused": True, "msg": str(error)}
        with running as run:
            if state == "absent":
                try:
                    return {**result, **self.result_of(run, session=terminate(run))}
                except NotEndedError as error:
                    return {**result, **self.result_of(run, failed=True, msg=str(error), refused=False)}
            created = create(run)
            values = {"session": created.record, "access": created.links, "refused": created.refused}
            if created.error:
                values |= {"failed": True, "msg": created.error}
            return {**result, **self.result_of(run, **values)}
