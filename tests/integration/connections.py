"""One shared SSH connection per host, because a login takes ten times as long as a command."""

from __future__ import annotations

import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock, Semaphore

SESSIONS = 8
"""Maximum number of concurrent commands per connection; sshd allows ten by default."""

OPEN = {
    "ControlMaster": "yes",
    "ControlPersist": "60",
    "ConnectTimeout": "10",
    "ServerAliveInterval": "2",
    "ServerAliveCountMax": "10",
}


class Connections:
    """The SSH connections of one process; each closes after a minute without commands."""

    def __init__(self, command: Callable[[str], list[str]]) -> None:
        """Take a function that returns the ssh command for a host; its last word is the line to run there."""
        self._command = command
        self._folder = tempfile.TemporaryDirectory(prefix="lab-")
        self._opening: defaultdict[str, Lock] = defaultdict(Lock)
        self._free: defaultdict[str, Semaphore] = defaultdict(partial(Semaphore, SESSIONS))

    @contextmanager
    def shared(self, host: str) -> Iterator[list[str]]:
        """Yield the options of an ssh command that uses the connection; none if it is full: ssh then logs in itself."""
        if not self._free[host].acquire(blocking=False):
            yield []
            return
        path = Path(self._folder.name) / host
        try:
            with self._opening[host]:
                if not path.exists():
                    self._open(host, path)
            # If the connection could not be opened, this ssh tries again and prints the reason.
            yield [f"-oControlPath={path}"]
        finally:
            self._free[host].release()

    def _open(self, host: str, path: Path) -> None:
        options = [f"-o{name}={value}" for name, value in {**OPEN, "ControlPath": path}.items()]
        ssh, *words, _line = self._command(host)
        nothing = subprocess.DEVNULL
        subprocess.run([ssh, "-fN", *options, *words], stdin=nothing, stdout=nothing, stderr=nothing, check=False)
