"""Installs an Ansible with community.docker in a separate virtual environment.

It cannot be in the project's own: the package ``ansible`` contains a folder of collections that would hide ours.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.bench.lab import ROOT

FOLDER = ROOT / ".cache" / "bench-venv"
# The release with the core in requirements/runtime.txt.
PACKAGE = "ansible==12.*"


def ensure_other_ansible() -> Path:
    """Return the ``ansible-playbook`` with community.docker; install it if it is missing or outdated."""
    ready = FOLDER / "ready"
    requirements = [ROOT / "requirements" / name for name in ("runtime.txt", "constraints.txt")]
    if not ready.exists() or any(path.stat().st_mtime > ready.stat().st_mtime for path in requirements):
        print(f"bench: installing {PACKAGE} into {FOLDER.relative_to(ROOT)}, about a minute", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
        pip = [str(FOLDER / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", PACKAGE]
        subprocess.run([*pip, "-r", str(requirements[0]), "-c", str(requirements[1])], check=True)
        ready.touch()
    return FOLDER / "bin" / "ansible-playbook"
