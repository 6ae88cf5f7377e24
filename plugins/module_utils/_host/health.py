# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the health checks of an agent, which are executables in a folder, and stores what they find.

A check exits with 0 if all is well. Otherwise each line of its output is what it has found: of a device in the form
``device ID: REASON``, else of the whole agent.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import stat
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from .._model.errors import one_line
from .._model.files import write_atomically
from .._model.health import Health, HealthProblem
from .._model.state_format import StateFormat
from .processes import process_start_time
from .store import Store

CHECK_SECONDS, KILL_SECONDS = 20.0, 0.1
"""How long one check may take, and how long it may take to end when it is killed."""

VERDICT = Path("/run/backendai-health/health.json")
"""The health that counts, in memory: a check may find that the file system of the state cannot be written.

It is empty if the last look could not be stored. Its copy in the state keeps the history over a boot. It counts until
the first look after that, which begins when the engine has started.
"""

MAX_OUTPUT, MAX_REASON = 16384, 200

_FORMAT = StateFormat("the health", Health)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_DEVICE = re.compile(r"device (\S+): *(.*)")


def read_health(store: Store) -> Health:
    """Return the health as of the last look; one without problems if there is none, or it cannot be read."""
    for path in (VERDICT, store.health_file):
        # The next look writes it again.
        with contextlib.suppress(OSError, ValueError):
            return _FORMAT.load(path.read_bytes())
    return Health()


def is_health_lost() -> bool:
    """Return whether what the last look has found could not be stored."""
    return VERDICT.exists() and not VERDICT.stat().st_size


def write_health(store: Store, health: Health) -> list[str]:
    """Store the health, and its copy in the state; return a sentence for each of them that cannot be written."""
    content = _FORMAT.dump(health)
    failure = _write(VERDICT, content)
    if failure:
        # What an earlier look has found counts no more. To empty a file needs no room.
        with contextlib.suppress(OSError):
            VERDICT.write_bytes(b"")
    return [*filter(None, [failure, _write(store.health_file, content)])]


def _write(path: Path, content: str) -> str:
    """Write a file in a folder of root's; return a sentence if that fails, else an empty text."""
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_atomically(path, content, durable=False)
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}."
    return ""


def find_checks(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the checks in a folder, and a sentence for each that is refused.

    They run as root, so only root may be able to write them. Names are as those of ``run-parts``: no dot, so that
    backups of editors are left out.
    """
    if not folder.is_dir():
        return [], []
    checks, refused = [], []
    for path in sorted(folder.iterdir()):
        if _NAME.fullmatch(path.name):
            problem = _find_problem(path) or _find_problem(folder)
            if problem:
                refused.append(f"the health check {path} does not run: {problem}.")
            elif os.access(path, os.X_OK):
                checks.append(path)
    return checks, refused


def _find_problem(path: Path) -> str:
    """Return why a file or folder is not root's alone; empty if it is."""
    status = path.stat()
    if status.st_uid != os.geteuid():
        return f"{path} does not belong to root"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{path} is writable by others than root"
    return ""


def run_checks(checks: Iterable[Path], environment: Mapping[str, str]) -> list[HealthProblem]:
    """Run the checks one after the other, and return what they find."""
    return [problem for check in checks for problem in _run_check(check, environment)]


def _run_check(path: Path, environment: Mapping[str, str]) -> list[HealthProblem]:
    too_long = HealthProblem(path.name, f"the check took more than {CHECK_SECONDS:g} seconds")
    left = VERDICT.with_name(f"{path.name}.left")
    if _still_runs(left):
        # There is never a second one.
        return [too_long]
    try:
        process = subprocess.Popen(
            [str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", **environment},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        return [HealthProblem(path.name, f"it cannot be run: {error.strerror}")]
    try:
        output, code = _read_output(process)
    except subprocess.TimeoutExpired:
        return [too_long]
    finally:
        # Whatever it has left behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(KILL_SECONDS)
        except subprocess.TimeoutExpired:
            # One that hangs in the kernel does not end: nobody waits for it.
            _note_left(left, process.pid)
        if process.stdout:
            process.stdout.close()
    return _parse(path.name, output, code) if code else []


def _note_left(path: Path, pid: int) -> None:
    """Note a check that does not end."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_atomically(path, f"{pid} {process_start_time(pid)}", durable=False)


def _still_runs(path: Path) -> bool:
    """Return whether the check of a note, which did not end, has not ended since."""
    with contextlib.suppress(OSError, ValueError):
        pid, started = path.read_text().split()
        if process_start_time(int(pid)) == started:
            return True
        path.unlink()
    return False


def _read_output(process: subprocess.Popen[bytes]) -> tuple[str, int]:
    """Return the beginning of what a check prints, and its exit code. Raises :class:`subprocess.TimeoutExpired`."""
    deadline, output = time.monotonic() + CHECK_SECONDS, b""
    pipe = process.stdout.fileno() if process.stdout else -1
    while True:
        ready = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]
        if not ready:
            raise subprocess.TimeoutExpired(process.args, CHECK_SECONDS)
        chunk = os.read(pipe, 1 << 16)
        if not chunk:
            return output.decode(errors="replace"), process.wait(max(0.0, deadline - time.monotonic()))
        output = (output + chunk)[:MAX_OUTPUT]


def _parse(check: str, output: str, code: int) -> list[HealthProblem]:
    """Return the problems in the output of a check that has failed: one of the host, and one of each device."""
    lines = [one_line(line)[:MAX_REASON] for line in output.splitlines() if line.strip()]
    matches = [_DEVICE.fullmatch(line) for line in lines]
    problems = [HealthProblem(check, match[2] or "it is not healthy", (match[1],)) for match in matches if match]
    others = [line for line, match in zip(lines, matches) if not match]
    if others or not problems:
        problems.insert(0, HealthProblem(check, others[0] if others else f"its exit code is {code}"))
    return problems
