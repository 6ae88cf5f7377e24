"""One connection to each host, which all that tests ask of it share: to log in costs ten times what a question does."""

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
"""How many commands go over a connection at once: an sshd takes ten by default."""

OPEN = {
    "ControlMaster": "yes",
    "ControlPersist": "60",
    "ConnectTimeout": "5",
    "ServerAliveInterval": "2",
    "ServerAliveCountMax": "5",
}


class Connections:
    """The connections of one process; each ends by itself when nothing has been asked of its host for a minute."""

    def __init__(self, command: Callable[[str], list[str]]) -> None:
        """Take what returns the ssh to a host: its last word is the line to run there."""
        self._command = command
        self._folder = tempfile.TemporaryDirectory(prefix="lab-")
        self._opening: defaultdict[str, Lock] = defaultdict(Lock)
        self._free: defaultdict[str, Semaphore] = defaultdict(partial(Semaphore, SESSIONS))

    @contextmanager
    def shared(self, host: str) -> Iterator[list[str]]:
        """Yield the options of an ssh that goes over the connection, or that logs in where there is no room on it."""
        if not self._free[host].acquire(blocking=False):
            yield []
            return
        path = Path(self._folder.name) / host
        try:
            with self._opening[host]:
                if not path.exists():
                    self._open(host, path)
            # Where the host let nobody in, this ssh tries, and says why.
            yield [f"-oControlPath={path}"]
        finally:
            self._free[host].release()

    def _open(self, host: str, path: Path) -> None:
        options = [f"-o{name}={value}" for name, value in {**OPEN, "ControlPath": path}.items()]
        ssh, *words, _line = self._command(host)
        nothing = subprocess.DEVNULL
        subprocess.run([ssh, "-fN", *options, *words], stdin=nothing, stdout=nothing, stderr=nothing, check=False)
