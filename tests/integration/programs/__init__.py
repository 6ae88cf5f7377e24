"""Programs that tests run on hosts and in containers: single files that need only Python."""

from __future__ import annotations

import shlex
from pathlib import Path


def source(name: str) -> str:
    """Return the text of the program ``name``."""
    return Path(__file__).with_name(f"{name}.py").read_text()


def run_line(name: str, *arguments: object) -> str:
    """Return the shell line that runs the program ``name`` from its source, without a file."""
    return shlex.join(["python3", "-c", source(name), *map(str, arguments)])
