"""Runs commands of the machine and prints progress."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

Result = TypeVar("Result")


class LabError(Exception):
    """An error of the lab; its message is one sentence."""


def output(
    *argv: str, stdin: bytes | IO[bytes] | None = None, env: Mapping[str, str] | None = None, timeout: float = 120
) -> str:
    """Run a command that has to succeed and return its standard output.

    Raises LabError with the command's last output if it fails, is missing, or takes longer than ``timeout`` seconds.
    """
    source = subprocess.PIPE if isinstance(stdin, bytes) else stdin or subprocess.DEVNULL
    try:
        process = subprocess.Popen(argv, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        stdout, stderr = _communicate(process, stdin if isinstance(stdin, bytes) else None, timeout)
    except FileNotFoundError:
        raise LabError(f"{argv[0]} is not installed on this machine") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"'{' '.join(argv)}' did not end within {timeout:.0f} s") from None
    if process.returncode != 0:
        words = stderr.strip() or stdout.strip()
        raise LabError(f"'{' '.join(argv)}' failed ({process.returncode}): {words[-600:] or 'no output'}")
    return stdout


def _communicate(process: subprocess.Popen[bytes], feed: bytes | None, timeout: float) -> tuple[str, str]:
    """Return the output and the errors of a process; kill it on timeout."""
    with process:
        try:
            stdout, stderr = process.communicate(feed, timeout)
        except BaseException:
            process.kill()
            raise
    return stdout.decode(errors="replace"), stderr.decode(errors="replace")


def succeeds(*argv: str, timeout: float = 30) -> bool:
    """Tell whether a command exits with 0; false for a missing command or a timeout."""
    try:
        output(*argv, timeout=timeout)
    except LabError:
        return False
    return True


def run_logged(log: Path, *argv: str, env: Mapping[str, str] | None = None, timeout: float = 900) -> None:
    """Run a long command with its output appended to ``log``; a failure includes the end of that log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        sink.write(f"+ {' '.join(argv)}\n".encode())
        sink.flush()
        try:
            code = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=env, timeout=timeout, check=False
            ).returncode
        except FileNotFoundError:
            raise LabError(f"{argv[0]} is not installed on this machine") from None
        except subprocess.TimeoutExpired:
            raise LabError(f"{argv[0]} did not end within {timeout:.0f} s; its log is {log}") from None
    if code != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
        raise LabError(f"a command failed ({code}); the end of {log}:\n{tail}")


def in_parallel(*calls: Callable[[], Result]) -> list[Result]:
    """Make calls at the same time and return their results in order; raise the first failure after all have ended."""
    with ThreadPoolExecutor(max_workers=max(1, len(calls))) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


@contextmanager
def step(name: str) -> Iterator[None]:
    """Print one line with the seconds that a step took, if it succeeds."""
    started_at = time.monotonic()
    yield
    report(f"{name}: {time.monotonic() - started_at:.1f} s")


def report(line: str) -> None:
    """Print one line immediately, also if standard output is a pipe."""
    print(f"lab: {line}", file=sys.stdout, flush=True)
