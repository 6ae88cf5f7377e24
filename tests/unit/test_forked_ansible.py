"""Playbooks of tests are forked from a process that has imported Ansible: they do what the program does."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.ansible_settings import ROOT, environment
from tests.integration.forked_ansible import run_forked

PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.debug: {msg: "in {{ lookup('env', 'PWD') }}, with {{ lookup('env', 'GIVEN') }}"}
    - ansible.builtin.command: sleep {{ seconds }}
      connection: local
    - ansible.builtin.fail: {msg: it ends here}
"""


@pytest.fixture
def line(tmp_path: Path) -> list[str]:
    """Return the command line of a playbook that fails after ``seconds``."""
    path = tmp_path / "playbook.yml"
    path.write_text(PLAYBOOK)
    return ["ansible-playbook", "-i", "localhost,", "-e", f"ansible_python_interpreter={sys.executable}", str(path)]


def test_output_and_exit_code_are_those_of_the_program(
    line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line += ["-e", "seconds=0"]
    for given in ("first", "second"):
        monkeypatch.setenv("GIVEN", given)
        program = subprocess.run(
            line, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        code, output = run_forked(line, tmp_path / "output", 60)
        assert f"with {given}" in output
        assert code == program.returncode == 2
        assert [text for text in output.splitlines() if "delta" not in text] == program.stdout.splitlines()


def test_a_playbook_that_takes_too_long_is_killed(line: list[str], tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_forked([*line, "-e", "seconds=20"], tmp_path / "output", 0.1)
    assert not multiprocessing.active_children()
