"""Render the documentation of every plugin and role with ansible-doc; fail on warnings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

COLLECTION = "backendai.cluster"
FOLDERS = {"module": "plugins/modules", "inventory": "plugins/inventory", "connection": "plugins/connection"}
"""Folders in which each file is a plugin that ansible-doc has to know."""


def ansible_doc(*arguments: str) -> str:
    """Return the output of ansible-doc; exit if it fails or prints a warning."""
    process = subprocess.run(["ansible-doc", *arguments], capture_output=True, text=True, check=False)
    if process.returncode or process.stderr.strip():
        sys.exit(f"ansible-doc {' '.join(arguments)}:\n{process.stderr}{process.stdout}")
    return process.stdout


def documented() -> dict[str, set[str]]:
    """Return the names of the plugins and roles with documentation, by kind."""
    kinds = json.loads(ansible_doc("--metadata-dump", COLLECTION))["all"]
    return {kind: {name for name in names if name.startswith(f"{COLLECTION}.")} for kind, names in kinds.items()}


def expected() -> dict[str, set[str]]:
    """Return the names of the plugins and roles of the checkout that need documentation, by kind."""
    names = {kind: {path.stem for path in Path(folder).glob("*.py")} for kind, folder in FOLDERS.items()}
    names["role"] = {path.name for path in Path("roles").iterdir() if path.is_dir()}
    return {kind: {f"{COLLECTION}.{name}" for name in names} for kind, names in names.items()}


def main() -> None:
    found = documented()
    for kind, names in expected().items():
        if missing := names - found.get(kind, set()):
            sys.exit(f"without documentation: {kind} {', '.join(sorted(missing))}")
    for kind, names in found.items():
        if names:
            ansible_doc("--type", kind, *sorted(names))
            print(f"{kind}: {len(names)} documented")


if __name__ == "__main__":
    main()
