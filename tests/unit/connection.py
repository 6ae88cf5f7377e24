"""Ansible's local connection with a record of its commands, and an action that uses it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.become import BecomeBase
from ansible.plugins.loader import connection_loader
from ansible.template import Templar

from ansible_collections.backendai.cluster.plugins.plugin_utils.host_action import HostAction

Answer = tuple[int, bytes, bytes]
FILE = re.compile(r"< (\S+/request)")


@dataclasses.dataclass(frozen=True)
class Sent:
    """One run of the launcher: its command, its input, and whether the connection returns no output meanwhile.

    ``path`` and ``mode`` are those of the file that it reads from; none where that is standard input.
    """

    command: str
    data: bytes
    quiet: bool
    path: Path | None
    mode: int | None


class Echo(HostAction):
    """Action that sends a request to the program, with a timeout of 7 seconds."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        return {**super().run(tmp, task_vars), **self.call("echo", self._task.args, task_vars or {}, 7)}


class Become(BecomeBase):
    """Become plugin that keeps the user."""

    def __init__(self, user: str, *, pipelining: bool) -> None:
        super().__init__()
        self.user, self.pipelining = user, pipelining

    def get_option(self, option: str, *_where: Any, **_how: Any) -> str:
        return {"become_user": self.user}[option]

    def build_become_command(self, cmd: str, _shell: Any) -> str:
        return cmd


class Way:
    """Connection to this machine. ``sent`` are the runs of the launcher; ``answer`` replaces them, if set."""

    def __init__(self, folder: Path, **variables: Any) -> None:
        self.sent: list[Sent] = []
        self.answer: Callable[[Sent], Answer] | None = None
        self.commands: list[str] = []
        self.context = PlayContext()
        self.connection: Any = connection_loader.get("local", self.context)
        self.connection.set_options(var_options=variables)
        self.connection._shell.set_options(var_options={"ansible_remote_tmp": str(folder / "remote")})
        # A local connection would use the temporary folders of the control node.
        self.connection._remote_is_local = False
        self._really = self.connection.exec_command
        self.connection.exec_command = self._exec

    def _exec(self, command: str, in_data: bytes | None = None, sudoable: bool = True) -> Answer:
        self.commands.append(command)
        if "sys.stdin.buffer" in command:
            match = FILE.search(command)
            path = Path(match[1]) if match else None
            data, mode = (path.read_bytes(), path.stat().st_mode & 0o777) if path else (in_data or b"", None)
            self.sent.append(Sent(command, data, self.connection._play_context.no_log, path, mode))
            if self.answer:
                return self.answer(self.sent[-1])
        result: Answer = self._really(command, in_data=in_data, sudoable=sudoable)
        return result

    def action(self, args: dict[str, Any], *, check_mode: bool = False, **options: Any) -> Echo:
        """Return an action that uses this connection, with the fields ``options`` of its task."""
        task = Task()
        task.args, task.check_mode, task.diff = args, check_mode, False
        for name, value in options.items():
            setattr(task, name, value)
        loader = DataLoader()
        return Echo(task, self.connection, self.context, loader, Templar(loader=loader), None)
