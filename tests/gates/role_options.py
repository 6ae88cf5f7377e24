"""Check that each role option is required or has one default, the same in defaults and in argument_specs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ABSENT = object()


def load(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file; an absent or empty file is an empty mapping."""
    return (yaml.safe_load(path.read_text()) or {}) if path.exists() else {}


def option_faults(role: str, name: str, option: dict[str, Any], default: object) -> Iterator[str]:
    """Yield the faults of one option of a role; `default` is its value in the defaults file."""
    documented = option.get("default", ABSENT)
    if not name.startswith(f"{role}_"):
        yield f"{name} does not begin with {role}_"
    if option.get("required"):
        if default is not ABSENT or documented is not ABSENT:
            yield f"{name} is required but has a default"
    elif default is ABSENT:
        yield f"{name} is neither required nor in defaults/main.yml"
    elif documented is ABSENT:
        yield f"{name} has no default in meta/argument_specs.yml"
    elif (type(default), default) != (type(documented), documented):
        yield f"{name} is {default!r} in defaults/main.yml and {documented!r} in meta/argument_specs.yml"


def role_faults(role: Path) -> Iterator[str]:
    """Yield the faults of a role's options."""
    defaults = load(role / "defaults" / "main.yml")
    entries = load(role / "meta" / "argument_specs.yml").get("argument_specs", {})
    if "main" not in entries:
        yield "meta/argument_specs.yml has no entry point main"
    documented: set[str] = set()
    for entry in entries.values():
        options = entry.get("options", {})
        documented |= options.keys()
        for name, option in options.items():
            yield from option_faults(role.name, name, option, defaults.get(name, ABSENT))
    for name in sorted(defaults.keys() - documented):
        yield f"{name} is in defaults/main.yml but not in meta/argument_specs.yml"


def main() -> None:
    roles = sorted(path for path in Path("roles").iterdir() if path.is_dir())
    faults = {f"{role}: {fault}": None for role in roles for fault in role_faults(role)}
    if faults:
        sys.exit("\n".join(faults))
    print(f"role options: {len(roles)} roles, each option required or with one default")


if __name__ == "__main__":
    main()
