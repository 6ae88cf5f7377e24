"""Render the documentation of every plugin and role with ansible-doc; fail on warnings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

COLLECTION = "backendai.cluster"
FOLDERS = {"module": "plugins/modules", "inventory": "plugins/inventory", "connection": "plugins/connection"}
"""Folders in which each file is a plugin that ansible-doc has to list."""
KINDS = ("module", "inventory", "filter", "lookup", "test", "callback", "connection", "role")


def ansible_doc(*arguments: str) -> str:
    """Return the output of ansible-doc; exit if it fails or prints a warning."""
    process = subprocess.run(["ansible-doc", *arguments], capture_output=True, text=True, check=False)
    if process.returncode or process.stderr.strip():
        sys.exit(f"ansible-doc {' '.join(arguments)}:\n{process.stderr}{process.stdout}")
    return process.stdout


def undocumented(kind: str, documented: set[str]) -> set[str]:
    """Return the plugins or roles of the checkout that ansible-doc does not list."""
    if kind in FOLDERS:
        names = {path.stem for path in Path(FOLDERS[kind]).glob("*.py")}
    elif kind == "role":
        names = {path.name for path in Path("roles").iterdir() if path.is_dir()}
    else:
        return set()
    return {f"{COLLECTION}.{name}" for name in names} - documented


def main() -> None:
    for kind in KINDS:
        names = set(json.loads(ansible_doc("--type", kind, "--list", "--json", COLLECTION)))
        if missing := undocumented(kind, names):
            sys.exit(f"without documentation: {kind} {', '.join(sorted(missing))}")
        if names:
            ansible_doc("--type", kind, *sorted(names))
        print(f"{kind}: {len(names)} documented")


if __name__ == "__main__":
    main()
