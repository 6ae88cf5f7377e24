"""The tools of the checkout, .venv, which are set up while the lab's hosts are built."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from tests.lab.command import LabError, output, step
from tests.lab.identity import Lab

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv" / "bin" / "python"
PATIENCE = 900
#: Ends with this process, however that ends, and with it all that it has started.
_BOUND = ("setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
#: An index that does not answer is given up within seconds, and pip says so although it is told to be quiet.
IMPATIENCE = {"PIP_RETRIES": "1", "PIP_TIMEOUT": "10", "PIP_VERBOSE": "1"}
_DEFAULT_INDEX = re.compile(r"--index-url.*?\(default\s+(\S+)\)", re.DOTALL)


@contextmanager
def set_up_meanwhile(lab: Lab) -> Iterator[None]:
    """Run `make setup`, with the Python of this command, beside the block; a failure of the block ends it."""
    argv = ("make", "--no-print-directory", "--directory", str(lab.checkout), "setup", f"PYTHON={sys.executable}")
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*_BOUND, *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **IMPATIENCE}
        )
        try:
            yield
            with step("waited for the tools") if process.poll() is None else nullcontext():
                code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise LabError(f"`make setup` did not end within {PATIENCE} s") from None
        finally:
            process.kill()
            process.wait()
        if code != 0:
            log.seek(0)
            raise explained("`make setup` failed", log.read().decode(errors="replace"))


def explained(failure: str, log: str) -> LabError:
    """Return the error for pip's output: which index of packages is not reached, or what pip says last."""
    if "connection broken by" not in log:
        return LabError(f"{failure}: {log.strip()[-600:]}")
    match = _DEFAULT_INDEX.search(output(str(PYTHON), "-m", "pip", "install", "--help"))
    return LabError(f"{failure}: this machine does not reach {match[1] if match else 'the index of Python packages'}")
