"""Print the files that a playbook reaches: plays, tasks, actions, filters, and all that these and the program import.

``python -m tests.gates.reach create_session`` prints them, and how many there are. The program that hosts run counts as
well: each phase that its requests name.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

OURS = "ansible_collections.backendai.cluster.plugins"
PLUGINS = Path("plugins")
INCLUDED = re.compile(r"(?:import_playbook|import_tasks|include_tasks): ([\w/]+\.yml)")
NAMED = re.compile(r"backendai\.cluster\.(\w+)")
PROGRAM = PLUGINS / "module_utils/_program"


def playbooks(path: Path, seen: set[Path]) -> set[Path]:
    """Return ``seen`` with a playbook's file and all files that it includes."""
    if path not in seen:
        seen.add(path)
        for name in INCLUDED.findall(path.read_text()):
            playbooks((path.parent / name).resolve().relative_to(Path.cwd()), seen)
    return seen


def plugins_of(path: Path) -> Iterator[Path]:
    """Yield the actions, modules on hosts, and filters that a file of plays or tasks names."""
    for name in NAMED.findall(path.read_text()):
        action = PLUGINS / "action" / f"{name}.py"
        found = [action if action.exists() else PLUGINS / "modules" / f"{name}.py", PLUGINS / "filter" / f"{name}.py"]
        yield from (each for each in found if each.exists())


def imported_by(path: Path) -> Iterator[Path]:
    """Yield the files of the collection that a file imports, at any level of it."""
    package = ".".join([OURS, *path.relative_to(PLUGINS).parent.parts])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
            yield from _files([module, *(f"{module}.{alias.name}" for alias in node.names)])


def program_of(paths: set[Path]) -> Iterator[Path]:
    """Yield the files of the program that hosts run for the phases that the code on the control node names."""
    (phases,) = [
        ast.literal_eval(node.value)
        for node in ast.parse((PROGRAM / "main.py").read_text()).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "PHASES"
    ]
    on_control_node = [path for path in paths if path.suffix == ".py" and "module_utils" not in path.parts]
    words = {
        node.value
        for path in on_control_node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    yield PROGRAM / "main.py"
    yield from sorted({PROGRAM / f"{module}.py" for phase, module in phases.items() if phase in words})


def _files(modules: list[str]) -> Iterator[Path]:
    for module in modules:
        if module.startswith(f"{OURS}."):
            path = PLUGINS.joinpath(*module.removeprefix(f"{OURS}.").split("."))
            if path.with_suffix(".py").is_file():
                yield path.with_suffix(".py")


def reached_by(playbook: str) -> set[Path]:
    """Return the files that a playbook reaches."""
    plays = playbooks(Path("playbooks") / f"{playbook}.yml", set())
    found = plays | _closure([plugin for path in plays for plugin in plugins_of(path)])
    return found | _closure(list(program_of(found)))


def _closure(left: list[Path]) -> set[Path]:
    found: set[Path] = set()
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += imported_by(path)
    return found


def main() -> None:
    found = sorted(map(str, reached_by(sys.argv[1])))
    print("\n".join(found))
    print(f"{len(found)} files")


if __name__ == "__main__":
    main()
