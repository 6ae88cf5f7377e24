# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ansible-runner's events mean for a user: which step runs on which host, and why a run has failed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

HIDDEN = "censored"

JUDGING = ("Validate the request", "Plan the session")
"""The steps that refuse a request before anything is changed."""


@dataclasses.dataclass
class RunEvents:
    """Collects the errors of a run; ``task`` is told of steps and hosts, ``line`` of what the playbook shows."""

    task: Callable[[str, str, str], None] = lambda _task, _host, _state: None
    line: Callable[[str], None] = lambda _line: None
    errors: list[str] = dataclasses.field(default_factory=list)
    fatal: str = ""
    refused: bool = False
    """Whether a step has failed that only judges the request."""

    def take(self, event: Mapping[str, Any]) -> bool:
        """Take an event; false, so that ansible-runner keeps no file of it."""
        kind, data = event.get("event"), event.get("event_data") or {}
        task, host = str(data.get("task") or ""), str(data.get("host") or "")
        if kind == "playbook_on_task_start":
            self.task(task, "", "begun")
        elif kind == "runner_on_start":
            self.task(task, host, "begun")
        elif kind == "runner_on_ok":
            self.task(task, host, "done")
        elif kind in ("runner_on_failed", "runner_on_unreachable"):
            self.task(task, host, "failed")
            if not data.get("ignore_errors"):
                self._fail(host, data.get("res") or {})
                self.refused |= task in JUDGING
        elif kind in ("verbose", "error") and event.get("stdout"):
            text = str(event["stdout"])
            if text.startswith(("ERROR!", "[ERROR]")) and not self.fatal:
                self.fatal = text.partition(" ")[2].removeprefix(": ").strip()
            else:
                self.line(text)
        return False

    def _fail(self, host: str, result: Mapping[str, Any]) -> None:
        message = str(result.get("msg") or "").strip()
        if HIDDEN in result or not message:
            message = "a step has failed whose message is hidden, because it may quote secrets"
        text = message if host in ("", "localhost") else f"{host}: {message}"
        if text not in self.errors:
            self.errors.append(text)

    @property
    def reason(self) -> str:
        """Why the run has failed, in sentences."""
        return "\n".join(self.errors) or self.fatal or "Ansible has ended without a reason; an operator finds it in the log."
