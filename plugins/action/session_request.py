# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validate the request on the control node, before any host is contacted."""

from __future__ import annotations

import dataclasses
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._model.validation import ValidationError
from ..plugin_utils._report.record import to_json, unplanned_record
from ..plugin_utils.control import ControlAction
from ..plugin_utils.request_file import read_user_options
from ..plugin_utils.run_request import CREATE, PRUNE, read_request


class ActionModule(ControlAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, args = super().run(tmp, task_vars), self._task.args
        variables = self.session_variables(task_vars or {})
        purpose = args.get("purpose") or CREATE
        if purpose not in (CREATE, PRUNE):
            raise AnsibleActionFail(f"purpose: {purpose!r} must be {CREATE} or {PRUNE}.")

        try:
            # From here on, what users give is only read, never passed to the templar.
            variables |= read_user_options(variables)
            request = read_request(
                purpose,
                variables,
                list(args.get("agents") or []),
                list(args.get("gateways") or []),
                (task_vars or {})["hostvars"],
                lambda path: self.queue_at(path, task_vars or {}),
                self._display.warning,
            )
        except ValidationError as error:
            record = unplanned_record(None, variables.get("session_name"), "ERROR", error=str(error))
            self.write_report(str(variables.get("session_record_path") or ""), to_json(record))
            raise AnsibleActionFail(str(error)) from None
        plain = dataclasses.asdict(request)
        del plain["left_open"]
        if request.spec is None:
            del plain["spec"]
        # The user's environment may hold secrets.
        return {**result, "changed": False, **plain, "_ansible_no_log": request.spec is not None}
