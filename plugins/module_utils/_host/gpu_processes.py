# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads which processes compute on NVIDIA GPUs, and whether they are in certain containers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from .._model.errors import one_line
from .processes import PROC

QUERY = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader")
SECONDS, KILL_SECONDS = 1.9, 0.1
"""How long the driver may take, and how long its program may take to end when it is killed: together two seconds."""

_PROCESS = re.compile(r"((?:GPU|MIG)-[^\s,]+), *([^\s,]+)")
_WARNING = "WARNING:"
"""How the lines begin in which nvidia-smi says something about a GPU whatever it is asked."""


class GpuProcesses(NamedTuple):
    """The GPUs on which processes compute: by the UUID that the driver names, a number of a process, or other words.

    ``unknown`` is why the driver does not say all of it, as a phrase; empty if it does.
    """

    users: list[tuple[str, str]]
    unknown: str = ""


def read_gpu_processes() -> GpuProcesses:
    """Return what the driver says within two seconds."""
    try:
        code, printed, errors = _ask_driver()
    except OSError as error:
        return GpuProcesses([], f"nvidia-smi cannot be run: {error.strerror}")
    except subprocess.TimeoutExpired:
        return GpuProcesses([], f"nvidia-smi took more than {SECONDS:g} seconds")
    if code:
        return GpuProcesses([], f"nvidia-smi failed: {one_line(f'{printed} {errors}')}")
    lines = [line.strip() for line in printed.splitlines() if line.strip() and not line.startswith(_WARNING)]
    matches = [(line, _PROCESS.fullmatch(line)) for line in lines]
    strange = next((f"nvidia-smi printed {line!a}" for line, match in matches if not match), "")
    return GpuProcesses([(match[1], match[2]) for _line, match in matches if match], strange)


def _ask_driver() -> tuple[int, str, str]:
    """Return the exit code, the output and the errors of nvidia-smi. Raises :class:`OSError` or `TimeoutExpired`."""
    process = subprocess.Popen(
        QUERY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    try:
        printed, errors = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # One that hangs in the kernel does not end: nobody waits for it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_SECONDS)
        raise
    return process.returncode, printed, errors


def describe_users(users: Iterable[tuple[str, str]], containers: Collection[str]) -> Mapping[str, str]:
    """Return the first process on each GPU that is in none of the containers, in words, by the UUID of the GPU.

    ``containers`` are full ids.
    """
    busy: dict[str, str] = {}
    for gpu, pid in users:
        process = _describe(pid, containers)
        if process:
            busy.setdefault(gpu, process)
    return busy


def _describe(pid: str, containers: Collection[str]) -> str:
    """Return a process in words; empty if it is in one of the containers, or has ended.

    What the driver does not name could be anybody's.
    """
    if not pid.isdigit():
        return "an unknown process"
    try:
        groups = (PROC / pid / "cgroup").read_text()
        if any(container in groups for container in containers):
            return ""
        # A program may give itself any name.
        name = ascii((PROC / pid / "comm").read_text(errors="replace").strip())[1:-1]
    except OSError:
        return ""
    return f"{name} (pid {pid})"
