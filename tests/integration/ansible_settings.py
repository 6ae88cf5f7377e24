"""The environment that Ansible runs in, with plain output."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """Return the environment of this process, with these settings, and without what containers set for Python."""
    users = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    settings = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"}
    return {**users, **settings, "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"}
