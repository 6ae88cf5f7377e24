"""Installs other releases of Ansible, each in a virtual environment of its own.

They cannot be in the project's: it has one release of ansible-core, and the package ``ansible`` contains a folder of
collections that would hide ours.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.lab.command import step

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements"

OF_LINKS = [
    *(f"tests/unit/plugins/plugin_utils/test_{name}.py" for name in ("host_link", "link_pool", "agent_calls")),
    "tests/unit/plugins/plugin_utils/test_interruption.py",
    "tests/unit/plugins/action/test_session_info_plays.py",
]
"""The tests of what depends on the inside of ansible-core: they run on the oldest and on the newest release."""


def ensure_ansible(name: str, packages: Sequence[str], constraints: Sequence[str]) -> Path:
    """Return the folder of programs with these packages; install them if they, or the versions, are others.

    ``constraints`` are names of files in ``requirements``.
    """
    folder, files = ROOT / ".cache" / name, [REQUIREMENTS / f"{kind}.txt" for kind in constraints]
    recipe = "\n".join([*packages, *(path.read_text() for path in files)])
    digest, installed = hashlib.sha256(recipe.encode()).hexdigest(), folder / "installed"
    if not installed.exists() or installed.read_text() != digest:
        with step(f"{packages[0]} in .cache/{name}"):
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *packages]
            subprocess.run([*pip, *(word for path in files for word in ("-c", str(path)))], check=True)
        installed.write_text(digest)
    return folder / "bin"


def oldest_core() -> str:
    """Return the oldest release of ansible-core that the collection supports, such as ``2.18``."""
    found = re.search(r">=(\d+\.\d+)", (ROOT / "meta" / "runtime.yml").read_text())
    assert found
    return found[1]
