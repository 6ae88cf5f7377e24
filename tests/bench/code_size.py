"""Counts code: lines and modules of the plugins that git tracks."""

from __future__ import annotations

import subprocess

from tests.bench.lab import ROOT


def measure() -> dict[str, list[float]]:
    """Return the lines of all plugins and the number of modules."""
    plugins = _tracked("plugins/*.py")
    lines = sum(len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in plugins)
    return {"lines_plugins": [lines], "modules": [len(_tracked("plugins/modules/*.py"))]}


def _tracked(pattern: str) -> list[str]:
    """Return the paths that a pattern of git matches; its ``*`` matches ``/`` too."""
    command = ["git", "ls-files", "-z", pattern]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for path in listed.split("\0") if path]
