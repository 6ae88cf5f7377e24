# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What happens while a command runs: one line that changes on a terminal, and nothing but what matters elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.status import Status

from .text import printable, wrapped

PULL = "Pull images"


class Progress:
    """Takes the events of a command, and shows them on the console of errors, as the result goes to the other."""

    def __init__(self, console: Console, output: Console, *, verbose: bool) -> None:
        self._console, self._output, self._verbose = console, output, verbose
        self._status: Status | None = None
        self._pulls: dict[str, bool] = {}
        self.described = ""

    def __enter__(self) -> Progress:
        if self._console.is_terminal and not self._verbose:
            self._status = self._console.status("…", spinner="line")
            self._status.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._status:
            self._status.stop()

    def take(self, event: Mapping[str, Any]) -> None:
        """Show an event."""
        kind, text = event["event"], printable(str(event.get("text") or ""))
        if kind == "step":
            self._step(str(event.get("task")), str(event.get("host") or ""), str(event.get("state")))
        elif kind == "line":
            self._output.out(text)
        elif kind == "warning":
            for line in str(event.get("text")).splitlines():
                self._say(f"warning: {printable(line)}")
        else:
            self._say(text)

    def stopping(self) -> None:
        """Say that the command is being cancelled."""
        self._say("Stopping, and removing what has begun (Ctrl-C again leaves that to the manager) …")

    def _say(self, text: str) -> None:
        """Show a line, above the one that changes."""
        for line in wrapped(text, self._console.width):
            if self._status:
                self._console.out(line)
            else:
                # Ctrl-C within rich would show a line twice.
                self._console.file.write(f"{line}\n")
                self._console.file.flush()

    def _step(self, task: str, host: str, state: str) -> None:
        if task == PULL and host:
            self._pulls[host] = state != "begun"
        if self._verbose:
            self._say(printable(f"{task}{f' ({host})' if host else ''}: {state}"))
        elif self._status:
            self.described = self._describe(task)
            self._status.update(printable(self.described))

    def _describe(self, task: str) -> str:
        if task != PULL or not self._pulls:
            return f"{task} …"
        done = sum(self._pulls.values())
        waiting = [host for host, ready in self._pulls.items() if not ready]
        return f"Pull images: {done} of {len(self._pulls)} agents{f', waiting for {waiting[0]}' if waiting else ''} …"
