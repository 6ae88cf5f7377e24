"""What the role ``manager`` writes of what hosts say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.builders import ANSIBLE_PLAYBOOK, REPOSITORY

ROLE = REPOSITORY / "roles/manager"
VARIABLES = yaml.safe_load((ROLE / "vars/main.yml").read_text())
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7hZ0b1WQ0Yx2mZ3f0L0e3T3J2b7a8V3D1o5o7Q4x9Z"
OTHER = KEY.replace("J7h", "K8i")


def known_hosts(known: str = "", **hosts: dict[str, Any]) -> list[str]:
    """Return the lines of known_hosts, given the variables of hosts and what is known before."""
    variables = {
        "__manager_hosts": list(hosts),
        "__manager_key_pattern": VARIABLES["__manager_key_pattern"],
        "__manager_known_lines": known.splitlines(),
        "hostvars": hosts,
    }
    return _render(ROLE / "templates/known_hosts.j2", variables).splitlines()


def _render(path: Path, variables: dict[str, Any]) -> str:
    loader = DataLoader()
    templar = Templar(loader=loader, variables=variables)
    # As the module template sets them.
    overrides = {"trim_blocks": True}
    with_overrides = templar.copy_with_new_env(available_variables=variables)
    return str(with_overrides.template(trust_as_template(path.read_text()), overrides=overrides))


def read(*lines: str, **variables: Any) -> dict[str, Any]:
    """Return the variables of a host that printed lines when it was asked for its keys."""
    return {"__manager_host_keys": {"stdout_lines": list(lines)}, **variables}


def remove_what_is_gone(source: Path, installed: Path, *options: str) -> subprocess.CompletedProcess[str]:
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {
            "manager_inventory": str(source),
            "__manager_installed_inventory": str(installed),
            "ansible_python_interpreter": sys.executable,
        },
        "tasks": [{"import_tasks": str(ROLE / "tasks/inventory_gone.yml")}],
    }
    path = installed.with_name("play.yml")
    path.write_text(yaml.safe_dump([play]))
    command = [*ANSIBLE_PLAYBOOK, "-i", "localhost,", str(path), *options]
    home = str(installed.with_name("home"))
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOME": home, "ANSIBLE_PIPELINING": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_what_the_folder_of_the_inventory_has_no_more_is_removed(tmp_path: Path) -> None:
    source, installed, shared = tmp_path / "source", tmp_path / "installed", tmp_path / "shared"
    kept = {"hosts.yml", "group_vars", "group_vars/all.yml", "linked", "linked/x.yml", ".hidden"}
    gone = {"old.yml", "host_vars", "host_vars/agent9.yml", ".secret", "group_vars/agents.yml"}
    for folder, names in ((source, kept), (installed, kept | gone)):
        for name in sorted(names):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if "." in name:
                path.touch()
    # The module copy follows links as well.
    (source / "linked").rename(shared)
    (source / "linked").symlink_to(shared)
    (installed / "name with spaces {{ x }}.yml").touch()
    for changed in (True, False):
        run = remove_what_is_gone(source, installed)
        assert run.returncode == 0, run.stdout + run.stderr
        assert ("changed=1" in run.stdout) is changed
        assert {str(path.relative_to(installed)) for path in installed.rglob("*")} == kept


def test_an_inventory_that_cannot_be_listed_removes_nothing(tmp_path: Path) -> None:
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed/hosts.yml").touch()
    assert remove_what_is_gone(tmp_path / "nowhere", tmp_path / "installed").returncode != 0
    assert (tmp_path / "installed/hosts.yml").exists()


def test_a_host_is_known_by_its_name_and_its_addresses() -> None:
    host = read(f"{KEY} root@agent1", ansible_host="192.0.2.1", agent_underlay_address="198.51.100.1")
    assert known_hosts(agent1=host) == [f"agent1,192.0.2.1,198.51.100.1 {KEY} agent1"]


def test_a_port_is_part_of_the_name() -> None:
    host = read(KEY, ansible_host="192.0.2.1", ansible_port=2222)
    assert known_hosts(agent1=host) == [f"[agent1]:2222,[192.0.2.1]:2222 {KEY} agent1"]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "cat: not found",
        f"agent2 {OTHER}",
        f"@cert-authority * {OTHER}",
        "ssh-ed25519 AAAA,*",
        "ssh-dss " + "A" * 99,
    ],
)
def test_what_is_no_key_is_not_known(line: str) -> None:
    assert known_hosts(agent1=read(line, KEY)) == [f"agent1 {KEY} agent1"]


def test_a_comment_of_a_host_adds_nothing() -> None:
    assert known_hosts(agent1=read(f"{KEY} x\ragent2 {OTHER}", f"{KEY} agent2")) == [f"agent1 {KEY} agent1"]


def test_what_is_known_of_a_host_that_does_not_answer_stays() -> None:
    known = f"agent1 {OTHER} agent1\nagent2 {OTHER} agent2\nagent3 {OTHER} agent3"
    assert known_hosts(known, agent1=read(KEY), agent2={}) == [f"agent1 {KEY} agent1", f"agent2 {OTHER} agent2"]
