"""Where the playbook ``build_kit`` writes the kit."""

from __future__ import annotations

import pytest
import yaml
from ansible.template import trust_as_template

from tests.unit.builders import REPOSITORY
from tests.unit.rendering import templar


@pytest.mark.parametrize(
    ("variables", "path"),
    [
        ({"agent_kit_path": "~/kit.tar.gz"}, "/users/alice/kit.tar.gz"),
        ({"agent_kit_path": "/srv/kit.tar.gz"}, "/srv/kit.tar.gz"),
        ({"agent_kit_path": "kit.tar.gz"}, "/current/kit.tar.gz"),
        ({"agent_kit_path": ""}, "/current/backendai-kit-x86_64.tar.gz"),
        ({}, "/current/backendai-kit-x86_64.tar.gz"),
    ],
    ids=["home", "absolute", "relative", "empty", "none"],
)
def test_the_kit_is_written_where_the_shell_would_write_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], path: str
) -> None:
    monkeypatch.setenv("HOME", "/users/alice")
    (play,) = yaml.safe_load((REPOSITORY / "playbooks/build_kit.yml").read_text())
    block = next(task["block"] for task in play["tasks"] if "block" in task)
    task = next(task for task in block if "ansible.builtin.fetch" in task)
    dest = task["ansible.builtin.fetch"]["dest"].replace("lookup('ansible.builtin.env', 'PWD')", "'/current'")
    own = {name: trust_as_template(text) for name, text in task["vars"].items()}
    known = {**own, "__agent_kit_made": {"architecture": "x86_64"}, **variables}
    assert str(templar(known).template(trust_as_template(dest))) == path
