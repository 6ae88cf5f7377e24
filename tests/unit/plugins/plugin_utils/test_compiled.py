"""What plugins import is compiled once, not in every run, whatever Ansible's importer does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins import plugin_utils
from tests.unit.builders import REPOSITORY

OURS = "ansible_collections.backendai.cluster.plugins"
PROGRAM = f"""
import importlib, json, sys
from ansible.plugins import loader
loader.init_plugin_loader([sys.argv[1]])
importlib.import_module("{OURS}.action.session_info")
found = {{name: module for name, module in sys.modules.items() if name.startswith("{OURS}.")}}
ours = {{name for name, module in found.items() if type(module.__loader__).__name__ == "SourceFileLoader"}}
print(json.dumps({{
    "compiled": [found[name].__cached__ for name in ours],
    "others": [name.removeprefix("{OURS}.") for name in found.keys() - ours],
    "seconds": sys.modules["{OURS}.plugin_utils.survey"].SURVEY_SECONDS,
}}))
"""


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """The collection as it is installed, without compiled code."""
    folder = tmp_path / "ansible_collections/backendai/cluster"
    for name in ("plugins", "meta", "roles/session"):
        copytree(REPOSITORY / name, folder / name, ignore=ignore_patterns("__pycache__"))
    return folder


def imported(collection: Path) -> dict[str, Any]:
    """Return what a run that lists sessions imports: files of ``compiled`` code, and modules that Ansible compiles."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    line = [sys.executable, "-c", PROGRAM, str(collection.parents[2])]
    run = subprocess.run(line, cwd=collection.parents[2], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


def test_what_a_plugin_imports_is_kept_compiled(collection: Path) -> None:
    first = imported(collection)
    before = {"module_utils", "module_utils._model", "module_utils._model.printable", "plugin_utils"}
    assert {*first["others"]} == {"action", "action.session_info", *before}
    written = {path: Path(path).stat().st_mtime_ns for path in first["compiled"]}
    assert len(written) > 100
    assert {*imported(collection)["compiled"]} == {*written}
    assert {path: Path(path).stat().st_mtime_ns for path in written} == written


def test_changed_code_is_compiled_again(collection: Path) -> None:
    imported(collection)
    source = collection / "plugins/plugin_utils/survey.py"
    text = source.read_text()
    source.write_text(text.replace("SURVEY_SECONDS = 120", "SURVEY_SECONDS = 7"))
    assert imported(collection)["seconds"] == 7


def test_other_packages_are_left_to_their_importers() -> None:
    find = plugin_utils.CompiledFinder.find_spec
    folders = [str(REPOSITORY / "plugins/plugin_utils")]
    assert find(f"{OURS}.plugin_utils.survey", folders) is not None
    assert find("ansible_collections.community.general.plugins.plugin_utils.survey", folders) is None
    assert find(f"{OURS}.action.session", [str(REPOSITORY / "plugins/action")]) is None
    assert find(f"{OURS}.plugin_utils.nothing", folders) is None
    assert find(f"{OURS}.plugin_utils.survey") is None
