# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make a pass over the queue, from one task on the control node."""

from __future__ import annotations

from typing import Any

from ..plugin_utils._run.schedule import schedule
from ..plugin_utils.run_request import SCHEDULE
from ..plugin_utils.session_action import RequestRefusedError, SessionAction


class ActionModule(SessionAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        self.check_place(variables)
        try:
            running = self.run_for(SCHEDULE, self._task.args, variables)
        except RequestRefusedError as error:
            return {**result, "failed": True, "changed": False, "refused": True, "msg": str(error)}
        with running as run:
            passed = schedule(run)
            errors = [session.error for session in passed if session.error]
            failure = {"failed": True, "msg": " ".join(errors)} if errors else {}
            return {**result, **self.result_of(run, sessions=[session.record for session in passed], **failure)}
