# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ansible-runner's events mean for a user: which step runs on which host, and why a run has failed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

HIDDEN = "censored"

# A line of progress of a task that takes all steps itself, on all hosts.
_PROGRESS = re.compile(
    r"(?P<task>[A-Z][^():]*?)(?: \((?P<host>[^()]+)\))?: (?P<state>begun|done|failed)(?:: .*)?", re.DOTALL
)

_ERROR = re.compile(r"\[?ERROR(!|\])?:? ")
_PREFIX = "Task failed: "
# Users write the words of a session without their prefix. In a path or a name, and quoted, it is their own word.
_OPTION = re.compile(r"(?<![\w/.'\"-])session_(?=[a-z])")


@dataclasses.dataclass
class RunEvents:
    """Collects the errors of a run; ``task`` is told of steps and hosts.

    ``refused``: a task has not accepted the request, and nothing has been changed. ``unreachable`` are silent hosts,
    and the reasons. ``notes`` are what a run tells the user, in sentences.
    """

    task: Callable[[str, str, str], None] = lambda _task, _host, _state: None
    errors: list[str] = dataclasses.field(default_factory=list)
    unreachable: dict[str, str] = dataclasses.field(default_factory=dict)
    fatal: str = ""
    refused: bool = False
    notes: list[str] = dataclasses.field(default_factory=list)

    def take(self, event: Mapping[str, Any]) -> bool:
        """Take an event; false, so that ansible-runner keeps no file of it."""
        kind, data = event.get("event"), event.get("event_data") or {}
        task, host, result = str(data.get("task") or ""), str(data.get("host") or ""), data.get("res") or {}
        if kind in ("playbook_on_task_start", "runner_on_start"):
            self.task(task, host, "begun")
        elif kind == "runner_on_ok":
            self.task(task, host, "done")
            self._take_unavailable(result)
            self.notes += [_OPTION.sub("", str(note)) for note in result.get("notes") or ()]
            self.notes += filter(None, [(result.get("timer") or {}).get("problem")])
        elif kind == "runner_on_unreachable":
            self.task(task, host, "failed")
            self.unreachable[host] = _message(result)
        elif kind == "runner_on_failed":
            self.task(task, host, "failed")
            if not data.get("ignore_errors"):
                self._fail(host, result)
                self.refused |= bool(result.get("refused"))
                self._take_unavailable(result)
        elif kind == "verbose" and event.get("stdout"):
            self._take_text(str(event["stdout"]))
        return False

    def _take_text(self, text: str) -> None:
        """Take what Ansible has printed: a line of progress, or why it ends."""
        error, progress = _ERROR.match(text), _PROGRESS.fullmatch(text.strip())
        if error:
            self.fatal = self.fatal or text[error.end() :].strip()
        elif progress:
            self.task(progress["task"], progress["host"] or "", progress["state"])

    def _take_unavailable(self, result: Mapping[str, Any]) -> None:
        """Take the silent agents of a task that has asked all of them itself."""
        for name, agent in (result.get("unavailable") or {}).items():
            if agent["problem"] == "unreachable":
                self.unreachable[name] = agent["reason"]

    def _fail(self, host: str, result: Mapping[str, Any]) -> None:
        text = _message(result)
        text = text if host in ("", "localhost") else f"{host}: {text}"
        if text not in self.errors:
            self.errors.append(text)

    @property
    def reason(self) -> str:
        """Why the run has failed, in sentences."""
        silent = [f"{host} does not answer: {text}" for host, text in self.unreachable.items()]
        text = "\n".join(self.errors or silent) or self.fatal
        return _OPTION.sub("", text or "Ansible has ended without a reason.")


def _message(result: Mapping[str, Any]) -> str:
    message = str(result.get("msg") or "").strip().replace(_PREFIX, "")
    if HIDDEN in result or not message:
        return "a step has failed whose message is hidden, because it may quote secrets"
    return message
