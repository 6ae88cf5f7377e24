"""Each kind of mistake in a page is found, with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gates.pages import check_pages

OPTIONS = """argument_specs:
  main:
    options:
      session_name: {description: The name.}
      session_env: {description: The environment., type: dict}
      session_wait: {description: Whether to wait., type: bool}
      session_mounts:
        description: Folders.
        type: list
        elements: dict
        options: {source: {required: true}, mode: {choices: [ro, rw]}}
"""
FILES = {
    "Makefile": "ROUNDS ?= 1\n\ndemo: lab ## Show it\n\nlab:\n\ttrue\n",
    "README.md": "# Collection\n",
    "docs/other.md": "# Other\n\n## What's `left`?\n\n## Twice\n\n## Twice\n",
    "docs/bench.json": "{}\n",
    "inventory/agents.yml": "agents:\n  hosts:\n    agent1:\n",
    "playbooks/create_session.yml": "- hosts: \"{{ agent_group | default('agents') }}\"\n",
    "plugins/modules/session_plan.py": "",
    "plugins/module_utils/_model/plan.py": "",
    "roles/session/meta/argument_specs.yml": OPTIONS,
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def faults(checkout: Path, text: str) -> list[str]:
    """Return what is wrong with a page docs/page.md that has a text."""
    (checkout / "docs" / "page.md").write_text(text)
    return [str(fault) for fault in check_pages(checkout)]


def fence(language: str, *lines: str) -> str:
    return "\n".join([f"```{language}", *lines, "```", ""])


CREATE = "ansible-playbook -i inventory/agents.yml backendai.cluster.create_session"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (fence("yaml", "a: 1", "b: [1"), "4: this is not YAML: expected ',' or ']', but got '<stream end>'"),
        (fence("json", "{", '"a": 1,}'), "3: this is not JSON: Expecting property name enclosed in double quotes"),
        (
            fence("console", "$ ansible-playbook \\", "    backendai.cluster.create_sesion"),
            "2: no playbook is called backendai.cluster.create_sesion",
        ),
        (
            fence("console", "$ ansible-playbook backendai.cluster.session_plan"),
            "2: no playbook is called backendai.cluster.session_plan",
        ),
        ("`backendai.cluster.plan`", "1: nothing in the collection is called backendai.cluster.plan"),
        (fence("sh", "ansible-playbook playbooks/create.yml"), "2: there is no file playbooks/create.yml"),
        (fence("console", "$ sudo make lab demo ROUNDS=2 -j2 tests"), "2: make has no target tests"),
        (fence("sh", "make demo ROUND=2"), "2: the Makefile has no variable ROUND"),
        ("Run `make it`.", "1: make has no target it"),
        (fence("console", f"$ {CREATE} -e session_nam=a"), "2: no role has the variable session_nam"),
        (fence("console", f"$ {CREATE} \\", "    -e 'session_name=a b=1'"), "2: no role has the variable b"),
        (fence("sh", f"{CREATE} --extra-vars '{{\"session_x\": 1}}'"), "2: no role has the variable session_x"),
        ("`-e sesion_name=a`", "1: no role has the variable sesion_name"),
        (fence("yaml", "# spec", "session_nmae: a"), "3: no role has the variable session_nmae"),
        (
            fence("yaml", "agents:", "  hosts:", "    agent_1: {agent_user: 1}"),
            "4: no role has the variable agent_user",
        ),
        (
            fence("yaml", "a:", "  session_env: [1]"),
            (
                "3: argument 'session_env' is of type list and we were unable to convert to dict: <class 'list'> "
                "cannot be converted to a dict"
            ),
        ),
        (
            fence("yaml", "session_mounts: [{source: /a, target: /b}]"),
            "2: session_mounts.target. Supported parameters include: mode, source.",
        ),
        (
            fence("yaml", "session_mounts:", "  - {source: /a, mode: x}"),
            "2: value of mode must be one of: ro, rw, got: x found in session_mounts",
        ),
        (
            "Text,\nand `session_nmae`.",
            "2: neither a variable nor anything in the collection is called session_nmae",
        ),
        ("`session_nmae: 1`", "1: neither a variable nor anything in the collection is called session_nmae"),
        ("See `tests/unit` and `docs/nothing.md`.", "1: there is no file docs/nothing.md"),
        ("`_model/nothing.py`", "1: there is no file _model/nothing.py"),
        ("`docs/*.txt`", "1: there is no file docs/*.txt"),
        ("A [link](nothing.md).", "1: no file for the link nothing.md"),
        ("A [link](../../secret).", "1: no file for the link ../../secret"),
        ("Text.\n\nA\n[link](other.md#right).", "4: no heading for the link other.md#right"),
        ("A [link](#here).", "1: no heading for the link #here"),
        ("A [link](bench.json#figures).", "1: no heading for the link bench.json#figures"),
        ("![image](nothing.png)", "1: no file for the link nothing.png"),
        ("A [link][nothing].", "1: no address for the link [link][nothing]"),
        ("| a |\n|---|\n| [link](nothing.md) |", "3: no file for the link nothing.md"),
    ],
)
def test_a_mistake_is_found(checkout: Path, text: str, expected: str) -> None:
    (checkout / "tests").mkdir()
    (checkout / "tests/unit").mkdir()
    assert faults(checkout, text) == [f"docs/page.md:{expected}"]


@pytest.mark.parametrize(
    "text",
    [
        fence("yaml", "session_name: train", "session_env: {A: b}", "---", "other: !vault |", "  text"),
        fence("yaml", "session_wait: '{{ x }}'", "session_mounts: [{source: /a, mode: ro}]", "session_env: !vault x"),
        fence("yaml", "agents:", "  hosts:", "    agent_1:", "  children:", "    agent_rooms:"),
        fence("yaml", "- backendai.cluster.session_plan:", "    agent_option: 1"),
        fence("json", '{"session_unknown": "…"}'),
        fence("console", f"$ {CREATE} -e session_name=a -e agent_group=b -e ansible_user=c", "make a wish"),
        fence("console", f"work@main1:~$ {CREATE} -e @spec.yml"),
        fence("sh", f"make demo; {CREATE}"),
        fence("text", "make nothing"),
        "`backendai.cluster.session`, `backendai.cluster.NAME`, `session_*`, `session_plan`, `agent_group`",
        "`session_name=train-llm` makes the group `session_train_llm`; there is `agent_agent1` too",
        "`_model/plan.py`, `docs/*.json`, `inventory/agents.yml`, `and/or`",
        "[a](other.md#whats-left), [b](other.md#twice-1), [c](bench.json), [d](https://example.org/#x)",
        "[a](#top)\n\n# Top",
        "[a][b]\n\n[b]: other.md",
    ],
)
def test_what_is_right_is_no_mistake(checkout: Path, text: str) -> None:
    assert faults(checkout, text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Set `agent_schedulable: false`.", "1: do not recommend 'agent_schedulable: false': drain_agents and"),
        (
            fence("console", "# docker network rm backendai-default"),
            "2: do not recommend 'docker network rm backendai'",
        ),
        (fence("console", "# rm -rf /var/lib/backendai"), "2: do not recommend 'rm -rf /var/lib/backendai': remove_"),
        (
            "Run it with `provision_managers -e manager_state=absent`.",
            "1: do not recommend 'provision_managers -e manager_state=absent': remove_managers gives",
        ),
        (
            "| a | b |\n|---|---|\n| users, quotas | - : none |",
            "3: do not recommend '| users, quotas | -': managers have",
        ),
    ],
)
def test_what_other_pages_advise_against_is_found(checkout: Path, text: str, expected: str) -> None:
    (fault,) = [fault for fault in faults(checkout, text) if "do not recommend" in fault]
    assert fault.startswith(f"docs/page.md:{expected}")


def test_each_page_is_checked(checkout: Path) -> None:
    for name in ("README.md", "CONTRIBUTING.md", "roles/session/README.md"):
        (checkout / name).write_text("[a](nothing)\n")
    assert [fault.page for fault in check_pages(checkout)] == [
        "CONTRIBUTING.md",
        "README.md",
        "roles/session/README.md",
    ]
