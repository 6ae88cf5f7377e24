"""The documentation site: what its start page lists, and which links of the built pages are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gates.docs_site import broken_links, write_playbooks, write_start_page
from tests.gates.playbook_pages import page, read_playbook, read_role_options
from tests.unit.builders import REPOSITORY

PLAYBOOK = """---
# End a session. session_name selects the session,
# session_force ends it anyway.
- name: Find it
  hosts: "{{ agent_group | default('agents') }}"
  tasks:
    - ansible.builtin.include_tasks: tasks/find.yml
- name: End it
  ansible.builtin.import_playbook: parts/end.yml
"""
OPTIONS = """argument_specs:
  main:
    options:
      session_name: {description: The name.}
      session_force: {description: ["Whether C(a|b).", See O(session_name).], default: false}
      session_path: {description: A path., default: ""}
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    files = {
        "README.md": "# Collection\n\nWhat it is.\n\n## Install\n",
        "docs/zebra.md": "# Zebra\n",
        "docs/security.md": "# Security\n",
        "docs/sessions.md": "# Sessions\n",
        "roles/session/README.md": "# Role\n",
        "roles/session/meta/argument_specs.yml": OPTIONS,
        "playbooks/end.yml": PLAYBOOK,
        "playbooks/parts/end.yml": "- name: '{{ session_path | default() }}'\n",
        "playbooks/tasks/find.yml": "- include_tasks: find.yml\n",
        "reference/plan_module.rst": "backendai.cluster.plan module -- Plan it\n+++\n",
        "reference/session_role.rst": "backendai.cluster.session role -- One session\n+++\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_start_page_lists_every_page(checkout: Path) -> None:
    write_start_page(checkout, write_playbooks(checkout))
    text = (checkout / "index.md").read_text()
    assert text.startswith("# Collection\n\nWhat it is.\n\n\n## Guide\n")
    assert "## Install" not in text
    assert text.index("docs/sessions") < text.index("docs/security") < text.index("docs/zebra")
    assert "- {doc}`end </playbooks/end>`: End a session\n" in text
    assert "- {doc}`plan </reference/plan_module>`: Plan it\n" in text
    assert "- {doc}`session </roles/session/README>`: One session\n" in text
    for entry in ("Getting started <README>", "docs/zebra", "end <playbooks/end>", "session <roles/session/README>"):
        assert f"\n{entry}\n" in text


def test_a_playbook_is_described_by_its_own_file(checkout: Path) -> None:
    options = read_role_options(checkout)
    playbook = read_playbook(checkout / "playbooks/end.yml", options)
    assert playbook.steps == ("Find it", "End it")
    assert playbook.options == ("session_name", "session_force", "session_path")
    text = page(playbook, options)
    assert "{ansopt}`backendai.cluster.session#role:main:session_force` ends it anyway" in text
    assert "| `agent_group` | `agents` | The inventory group of the agents. |" in text
    assert r"| `false` | Whether <code>a\|b</code>\. See " in text


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "# End a session. session_name selects the session,\n# session_force ends it anyway.\n",
            "",
            "needs a comment",
        ),
        ("session_name", "session_nmae", "no role has the variable session_nmae"),
    ],
)
def test_a_playbook_without_a_right_description_is_refused(checkout: Path, old: str, new: str, problem: str) -> None:
    path = checkout / "playbooks/end.yml"
    path.write_text(PLAYBOOK.replace(old, new))
    with pytest.raises(ValueError, match=problem):
        read_playbook(path, read_role_options(checkout))


def test_every_playbook_has_a_description() -> None:
    options = read_role_options(REPOSITORY)
    for path in (REPOSITORY / "playbooks").glob("*.yml"):
        assert read_playbook(path, options).summary


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ('<a href="other.html#here">', []),
        ('<a href="#top">', []),
        ('<a href="sub/">', ["page.html: no file for the link sub/"]),
        ('<a href="https://example.org/x">', []),
        ('<a href="nothing.html">', ["page.html: no file for the link nothing.html"]),
        ('<a href="other.html#there">', ["page.html: no anchor for the link other.html#there"]),
        ('<a href="#there">', ["page.html: no anchor for the link #there"]),
        ('<img src="nothing.png">', ["page.html: no file for the link nothing.png"]),
        ('<script src="https://example.org/x.js">', ["page.html: loads https://example.org/x.js"]),
        ('<link rel="stylesheet" href="//example.org/x.css">', ["page.html: loads //example.org/x.css"]),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, link: str, expected: list[str]) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "other.html").write_text('<p id="here">')
    (tmp_path / "page.html").write_text(link)
    assert list(broken_links(tmp_path)) == expected
