"""Running the machine's commands, and telling what happens."""

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
    """What went wrong, as one sentence for the person at the terminal."""


def output(
    *argv: str, stdin: bytes | IO[bytes] | None = None, env: Mapping[str, str] | None = None, timeout: float = 120
) -> str:
    """Return the standard output of a command that has to succeed.

    Raises LabError with the command's own last words when it fails, is missing, or takes more than ``timeout`` seconds.
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
        raise LabError(f"'{' '.join(argv)}' failed ({process.returncode}): {words[-600:] or 'it said nothing'}")
    return stdout


def _communicate(process: subprocess.Popen[bytes], feed: bytes | None, timeout: float) -> tuple[str, str]:
    """Return what a process said and complained; one that takes too long is ended."""
    with process:
        try:
            stdout, stderr = process.communicate(feed, timeout)
        except BaseException:
            process.kill()
            raise
    return stdout.decode(errors="replace"), stderr.decode(errors="replace")


def succeeds(*argv: str, timeout: float = 30) -> bool:
    """Tell whether a command ends with exit code 0; a missing command or a timeout means no."""
    try:
        output(*argv, timeout=timeout)
    except LabError:
        return False
    return True


def run_logged(log: Path, *argv: str, env: Mapping[str, str] | None = None, timeout: float = 900) -> None:
    """Run a long command with its output appended to ``log``; a failure quotes the end of that log."""
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
    """Run the calls at the same time and return their results in order; the first failure is raised once all ended."""
    with ThreadPoolExecutor(max_workers=max(1, len(calls))) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


@contextmanager
def step(name: str) -> Iterator[None]:
    """Print one line with the seconds that a step took, when it ends well."""
    started_at = time.monotonic()
    yield
    report(f"{name}: {time.monotonic() - started_at:.1f} s")


def report(line: str) -> None:
    """Print one line at once, also when standard output is a pipe."""
    print(f"lab: {line}", file=sys.stdout, flush=True)
