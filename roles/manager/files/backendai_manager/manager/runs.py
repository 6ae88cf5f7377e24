# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs playbooks of the collection with ansible-runner."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import CancelledError, CommandError, RefusedError
from ..paths import Paths
from .agents import Agents
from .run_events import RunEvents
from .run_folder import run_folder

COLLECTION = "backendai.cluster"
REQUEST = "session_request_path"
CANCEL_SECONDS = 1
MAX_REPORT = 256 << 20

# How Ansible is set up, unless the operator has written a configuration file.
_DEFAULTS = {
    "ANSIBLE_FORKS": "50",
    "ANSIBLE_PIPELINING": "true",
    "ANSIBLE_SSH_ARGS": "-o ControlMaster=auto -o ControlPersist=60s -o ServerAliveInterval=15",
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a run has ended: whether it was successful, why not, and its reports by the variables that name files.

    ``refused``: the playbook has not accepted the request, and nothing has been changed.
    """

    done: bool
    reason: str
    reports: Mapping[str, Any]
    refused: bool = False

    def require(self) -> None:
        """Raise :class:`CommandError` unless the run was successful."""
        if not self.done:
            raise (RefusedError if self.refused else CommandError)(self.reason)


class Runs:
    """Runs playbooks on the inventory; ``cancelled`` is asked while one runs, and ends it.

    Only runs with the same word for ``sharing`` share SSH connections: a connection ends, or is stopped, with the
    processes of the timer or of the user that has opened it.
    """

    def __init__(self, paths: Paths, inventory: str, queue: str, cancelled: Callable[[], bool], sharing: str) -> None:
        self._paths, self._inventory, self._queue, self._cancelled = paths, inventory, queue, cancelled
        self._sharing = sharing

    def run(
        self,
        playbook: str,
        request: Mapping[str, Any] | None = None,
        trusted: Mapping[str, Any] | None = None,
        reports: Sequence[str] = (),
        events: RunEvents | None = None,
        *,
        check: bool = False,
    ) -> Outcome:
        """Run a playbook, and return its outcome. Raises :class:`CancelledError`.

        ``request`` is what a user gives: it is written to a file and never a variable, because those are templates.
        ``trusted`` are variables that no user can choose the text of. ``reports`` are variables that name files.
        """
        seen = events or RunEvents()
        with run_folder(self._paths.runtime) as folder:
            files = {name: folder / f"{name}.json" for name in reports}
            variables = {
                **(trusted or {}),
                "session_queue_path": self._queue,
                **{name: str(path) for name, path in files.items()},
            }
            if request:
                path = folder / "request.json"
                path.write_text(json.dumps(request))
                variables[REQUEST] = str(path)
            done = self._start(folder, playbook, variables, seen, check)
            if self._cancelled():
                raise CancelledError("cancelled.")
            contents = {name: _read(path) for name, path in files.items()}
            return Outcome(done, "" if done else seen.reason, contents, not done and seen.refused)

    def _start(self, folder: Path, playbook: str, variables: dict[str, Any], seen: RunEvents, check: bool) -> bool:
        # It takes a tenth of a second.
        from ansible_runner.interface import run

        private = folder / "runner"
        private.mkdir()
        runner = run(
            private_data_dir=str(private),
            playbook=f"{COLLECTION}.{playbook}",
            inventory=self._inventory,
            extravars=variables,
            envvars=self._environment(folder),
            cmdline="--check" if check else None,
            event_handler=seen.take,
            cancel_callback=self._cancelled,
            settings={"pexpect_timeout": CANCEL_SECONDS},
            quiet=True,
        )
        return bool(runner.status == "successful")

    @contextmanager
    def agents(self) -> Iterator[Agents]:
        """Yield the agents, to be asked without a playbook. From now on, this process has the settings of Ansible."""
        # What Ansible shows is no answer to the user's part.
        with self.environment() as environment, contextlib.redirect_stdout(sys.stderr):
            os.environ.update(environment)
            yield Agents(self._inventory)

    @contextmanager
    def environment(self) -> Iterator[dict[str, str]]:
        """Yield the environment for a program of Ansible that is started otherwise."""
        with run_folder(self._paths.runtime) as folder:
            yield self._environment(folder)

    def _environment(self, folder: Path) -> dict[str, str]:
        """Return the settings of Ansible: nothing of them is the user's, or from a file of the current folder."""
        settings, control = self._paths.ansible_settings, self._paths.runtime / "ssh" / self._sharing
        control.mkdir(mode=0o700, parents=True, exist_ok=True)
        local = folder / "ansible"
        local.mkdir(exist_ok=True)
        own, none = settings.exists(), local / "ansible.cfg"
        none.touch()
        return {
            **({} if own else _DEFAULTS),
            "ANSIBLE_CONFIG": str(settings if own else none),
            "ANSIBLE_COLLECTIONS_PATH": str(self._paths.collections),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(control),
            "ANSIBLE_LOCAL_TEMP": str(local),
            "ANSIBLE_HOME": str(self._paths.home / ".ansible"),
            "ANSIBLE_RETRY_FILES_ENABLED": "false",
            "ANSIBLE_NOCOLOR": "true",
            "ANSIBLE_NOCOWS": "true",
            "ANSIBLE_LOCALHOST_WARNING": "false",
        }


def clean_environment(home: Path) -> None:
    """Replace the environment of this process, and leave the user's folder, which may have a configuration file."""
    os.umask(0o077)
    os.chdir("/")
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    os.environ.clear()
    os.environ.update({"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"})


def _read(path: Path) -> Any:
    """Return the content of a report; ``None`` if the playbook has not written it."""
    try:
        if path.stat().st_size > MAX_REPORT:
            raise CommandError(f"{path.name} is larger than {MAX_REPORT} bytes.")
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        raise CommandError(f"the playbook has written a damaged {path.name}.") from None
