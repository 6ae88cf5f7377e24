"""Count what git tracks of the product: its code, what configures it, and what explains both.

``python -m tests.bench.code_size FOLDER`` counts another checkout.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.bench.lab import ROOT

# With the program of managers, which is a file of a role.
FOLDERS = ("plugins", "roles", "playbooks", "extensions")
SUFFIXES = {".py": "python", **dict.fromkeys((".yml", ".yaml", ".j2", ".sh", ".bash"), "other")}
INTERPRETER = re.compile(r"#!.*\b(?:(python)|(?:ba|da)?sh\b)")
JINJA_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)


def measure(root: Path = ROOT) -> dict[str, list[float]]:
    """Return the figures of a checkout."""
    plugins, modules = (_tracked(root, pattern) for pattern in ("plugins/*.py", "plugins/modules/*.py"))
    statements = configuration = explanation = 0
    for path in _tracked(root, *FOLDERS):
        text = path.read_text(encoding="utf-8", errors="replace")
        kind = _kind(path, text)
        if kind == "python":
            statements += python_statements(text)
            explanation += len(python_explanation(text))
        elif kind:
            lines, comments = other_lines(text)
            configuration, explanation = configuration + lines, explanation + comments
    return {
        "lines_plugins": [sum(len(path.read_text(encoding="utf-8").splitlines()) for path in plugins)],
        "modules": [len(modules)],
        "statements": [statements],
        "lines_yaml_shell_jinja": [configuration],
        "lines_docstrings_comments": [explanation],
    }


def python_statements(text: str) -> int:
    """Return the number of statements, without docstrings."""
    return sum(isinstance(node, ast.stmt) and not _is_docstring(node) for node in ast.walk(ast.parse(text)))


def python_explanation(text: str) -> set[int]:
    """Return the numbers of the lines with a comment, and of those of docstrings that are not blank."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    numbers = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and _is_docstring(node):
            numbers |= {at for at in range(node.lineno, (node.end_lineno or 0) + 1) if lines[at - 1].strip()}
    return numbers


def other_lines(text: str) -> tuple[int, int]:
    """Return the lines of YAML, shell or Jinja that are neither blank nor comments, and those that are comments."""
    without = JINJA_COMMENT.sub("", text)
    lines, all_lines = (list(filter(str.strip, each.splitlines())) for each in (without, text))
    code = sum(not line.lstrip().startswith("#") for line in lines)
    return code, len(all_lines) - code


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _kind(path: Path, text: str) -> str:
    """Return ``python`` or ``other`` for what is counted, by the name of a file or by its interpreter."""
    if path.suffix in SUFFIXES:
        return SUFFIXES[path.suffix]
    interpreter = INTERPRETER.match(text)
    return "" if not interpreter else "python" if interpreter[1] else "other"


def _tracked(root: Path, *patterns: str) -> list[Path]:
    """Return the files that patterns of git match; their ``*`` matches ``/`` too."""
    command = ["git", "ls-files", "-z", *patterns]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return [root / name for name in listed.split("\0") if name]


def _lines() -> Iterator[str]:
    for name, (count,) in measure(Path(*sys.argv[1:]) if sys.argv[1:] else ROOT).items():
        yield f"{name:<30}{count:>10,.0f}"


if __name__ == "__main__":
    print("\n".join(_lines()))
