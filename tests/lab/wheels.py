"""The Python packages of manager1 as wheels, which the machine's pip downloads once."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

from tests.lab.command import LabError, run_logged, step
from tests.lab.identity import Lab
from tests.lab.leftovers import remove_folder
from tests.lab.tools import IMPATIENCE, PYTHON, ROOT, explained

REQUIREMENTS = ROOT / "roles" / "manager" / "files" / "requirements.txt"
#: The versions that the checks run with.
CONSTRAINTS = tuple(ROOT / "requirements" / f"{name}.txt" for name in ("runtime", "constraints"))
#: Of Debian 12: its Python, and the platforms that its pip accepts.
VERSION = "3.11"
PLATFORMS = ("manylinux_2_28", "manylinux2014")


def ensure_wheels(lab: Lab) -> None:
    """Download the wheels unless they are there, undamaged, for the current requirements."""
    note = lab.wheels.with_suffix(".sha256")
    if lab.wheels.exists() and note.exists() and note.read_text() == _digest(lab.wheels):
        return
    remove_folder(lab.wheels)
    with step("wheels"):
        target = ("--python-version", VERSION, "--implementation", "cp", "--only-binary", ":all:")
        platforms = [word for name in PLATFORMS for word in ("--platform", f"{name}_{platform.machine()}")]
        constraints = [word for path in CONSTRAINTS for word in ("--constraint", str(path))]
        # The machine's own Python may have no pip.
        download = (str(PYTHON), "-m", "pip", "download", "--disable-pip-version-check", "--progress-bar", "off")
        options = (*target, *platforms, *constraints, "--requirement", str(REQUIREMENTS))
        log = lab.logs / "wheels.log"
        log.unlink(missing_ok=True)
        try:
            run_logged(log, *download, "--dest", str(lab.wheels), *options, env={**os.environ, **IMPATIENCE})
        except LabError as error:
            raise explained(f"the packages of manager1 (log: {log})", log.read_text()) from error
    note.write_text(_digest(lab.wheels))


def _digest(wheels: Path) -> str:
    """Return a digest of what the wheels are downloaded for, and of the wheels."""
    digest = hashlib.sha256()
    for path in (Path(__file__), REQUIREMENTS, *CONSTRAINTS, *sorted(wheels.iterdir())):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()
