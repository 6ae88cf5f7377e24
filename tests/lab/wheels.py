"""The Python packages of manager1 as wheels, which the machine's pip downloads once."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

from tests.lab.command import run_logged, step
from tests.lab.identity import Lab
from tests.lab.leftovers import remove_folder

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "roles" / "manager" / "files" / "requirements.txt"
#: The machine's own Python may have no pip.
PIP_PYTHON = ROOT / ".venv" / "bin" / "python"
#: The versions that the checks run with.
CONSTRAINTS = tuple(ROOT / "requirements" / f"{name}.txt" for name in ("runtime", "constraints"))
#: Of Debian 12: its Python, and the platforms that its pip accepts.
PYTHON = "3.11"
PLATFORMS = ("manylinux_2_28", "manylinux2014")


def ensure_wheels(lab: Lab) -> None:
    """Download the wheels unless they are there for the current requirements."""
    recipe = lab.folder / "wheels.recipe"
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in (Path(__file__), REQUIREMENTS, *CONSTRAINTS)))
    if lab.wheels.exists() and recipe.exists() and recipe.read_text() == digest.hexdigest():
        return
    remove_folder(lab.wheels)
    with step("wheels"):
        target = ("--python-version", PYTHON, "--implementation", "cp", "--only-binary", ":all:")
        platforms = [word for name in PLATFORMS for word in ("--platform", f"{name}_{platform.machine()}")]
        constraints = [word for path in CONSTRAINTS for word in ("--constraint", str(path))]
        download = (str(PIP_PYTHON), "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
        options = (*target, *platforms, *constraints, "--requirement", str(REQUIREMENTS))
        run_logged(lab.logs / "wheels.log", *download, "--dest", str(lab.wheels), *options)
    recipe.write_text(digest.hexdigest())
