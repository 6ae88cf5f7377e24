"""The documentation of plugins and roles: what has none is found, and the rest is rendered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gates import plugin_docs
from tests.unit.builders import REPOSITORY

FILES = ("plugins/modules/plan.py", "plugins/inventory/sessions.py", "roles/agent/README.md")


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def documented(monkeypatch: pytest.MonkeyPatch, **kinds: str) -> list[tuple[str, ...]]:
    """Let ansible-doc know one plugin of each kind; return what it is called with besides."""
    names: dict[str, dict[str, dict[str, str]]] = {
        kind: {f"backendai.cluster.{name}": {}} for kind, name in kinds.items()
    }
    calls: list[tuple[str, ...]] = []

    def ansible_doc(*arguments: str) -> str:
        if arguments == ("--metadata-dump", "backendai.cluster"):
            return json.dumps({"all": {"keyword": {"become": {}}, "lookup": {}, **names}})
        calls.append(arguments)
        return ""

    monkeypatch.setattr(plugin_docs, "ansible_doc", ansible_doc)
    return calls


def test_what_is_documented_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = documented(monkeypatch, module="plan", inventory="sessions", role="agent", filter="planner")
    plugin_docs.main()
    names = {"module": "plan", "inventory": "sessions", "role": "agent", "filter": "planner"}
    assert calls == [("--type", kind, f"backendai.cluster.{name}") for kind, name in names.items()]


@pytest.mark.parametrize(("kind", "name"), [("module", "plan"), ("inventory", "sessions"), ("role", "agent")])
def test_a_file_without_documentation_is_found(monkeypatch: pytest.MonkeyPatch, kind: str, name: str) -> None:
    kinds = {"module": "plan", "inventory": "sessions", "role": "agent"}
    documented(monkeypatch, **{other: plugin for other, plugin in kinds.items() if other != kind})
    with pytest.raises(SystemExit, match=f"^without documentation: {kind} backendai.cluster.{name}$"):
        plugin_docs.main()


def test_folders_of_this_checkout_hold_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    assert all(plugin_docs.expected().values())
