"""The packages of the plugins form layers, and imports point in one direction only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

from tests.unit.builders import REPOSITORY

PLUGINS = REPOSITORY / "plugins"
OURS = "ansible_collections.backendai.cluster.plugins"
#: Each package may import those before it.
HOST_ROOMS = (
    "_model",
    "_host",
    "_docker",
    "_requirements",
    "_network",
    "_wireguard",
    "_firewall",
    "_session",
    "_gateway",
    "_exposure",
    "_program",
)
PURE = ("_placement", "_planner", "_request", "_lifecycle")


def modules_imported_by(path: Path) -> set[str]:
    """Yield the modules in the imports of a file, at any level of it."""
    package = ".".join([OURS, *path.relative_to(PLUGINS).parent.parts])
    return set(_find_names(ast.parse(path.read_text()), package))


def _find_names(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package)
            yield from (f"{module}.{alias.name}" for alias in node.names)


def files_of(folder: str) -> list[Path]:
    """Return the Python files below a folder of the plugins, at least one."""
    files = sorted((PLUGINS / folder).rglob("*.py"))
    assert files, folder
    return files


def ours(path: Path) -> set[str]:
    """Return the imports of a file from the collection, such as ``module_utils._model.plan.Kernel``."""
    return {name.removeprefix(f"{OURS}.") for name in modules_imported_by(path) if name.startswith(f"{OURS}.")}


def test_every_host_package_has_a_layer() -> None:
    rooms = {path.name for path in (PLUGINS / "module_utils").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms == set(HOST_ROOMS)


@pytest.mark.parametrize("path", files_of("module_utils"), ids=lambda path: str(path.relative_to(PLUGINS)))
def test_host_code_does_not_import_control_node_code(path: Path) -> None:
    assert not [name for name in ours(path) if not name.startswith("module_utils.")]


@pytest.mark.parametrize("room", HOST_ROOMS)
def test_imports_between_host_packages_point_down(room: str) -> None:
    allowed = {f"module_utils.{name}" for name in HOST_ROOMS[: HOST_ROOMS.index(room) + 1]}
    for path in files_of(f"module_utils/{room}"):
        imported = {".".join(name.split(".")[:2]) for name in ours(path)}
        assert imported <= allowed, path


@pytest.mark.parametrize("room", ["module_utils/_model", *(f"plugin_utils/{name}" for name in PURE)])
def test_pure_packages_import_neither_ansible_nor_docker(room: str) -> None:
    for path in files_of(room):
        assert not [name for name in modules_imported_by(path) if re.match(r"(ansible|docker)\b(?!_)", name)], path


def test_modules_do_not_import_control_node_code() -> None:
    for path in files_of("modules"):
        assert not [name for name in ours(path) if not name.startswith("module_utils.")], path
