"""The part of the user and that of the manager share what they say to each other, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

from tests.unit.builders import REPOSITORY

PACKAGE = REPOSITORY / "roles/manager/files/backendai_manager"
SHARED = ("errors", "files", "image_patterns", "options", "paths", "policy", "protocol")
#: What the programs start with.
ALLOWED = {
    "user": ("user", *SHARED),
    "manager": ("manager", *SHARED),
    "cli.py": ("user", *SHARED),
    "service.py": ("manager", *SHARED),
    "schedule.py": ("manager", *SHARED),
    **{f"{name}.py": SHARED for name in SHARED},
    "__init__.py": (),
}


def imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, anywhere in it."""
    package = ".".join(["backendai_manager", *path.relative_to(PACKAGE).parent.parts])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
            yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_neither_part_imports_the_other(path: Path) -> None:
    allowed = ALLOWED[path.relative_to(PACKAGE).parts[0]]
    own = [name.split(".")[1] for name in imports(path) if name.startswith("backendai_manager.")]
    assert set(own) <= set(allowed)


@pytest.mark.parametrize("path", sorted((PACKAGE / "user").rglob("*.py")), ids=lambda path: path.name)
def test_the_users_part_needs_no_ansible(path: Path) -> None:
    assert not [name for name in imports(path) if name.startswith(("ansible", "ansible_collections"))]
