"""The ways to agents that people have: ``session_info`` reads them through all of these, outside of tasks on them."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.ansible_settings import ROOT, environment
from tests.integration.inventories import UNREACHABLE, inventory_options
from tests.integration.laboratory import AGENTS, TIMEOUT, host_variables, run_on, run_on_all, ssh

pytestmark = pytest.mark.requests

OPERATOR, PASSWORD = "link-operator", "link-secret-word"
AGENT = AGENTS[0]
PLAY = [
    {
        "hosts": "localhost",
        "gather_facts": False,
        "tasks": [
            {"backendai.cluster.session_info": {"agents": [*AGENTS]}, "register": "found"},
            {"ansible.builtin.copy": {"content": "{{ found.unavailable | to_json }}", "dest": "{{ result }}"}},
        ],
    }
]


@pytest.fixture(scope="module")
def operator() -> Iterator[str]:
    """A user of the agents with a password, who becomes root by sudo or su with it."""
    lines = (
        f"useradd --create-home --shell /bin/bash {OPERATOR}",
        f"echo {OPERATOR}:{PASSWORD} | chpasswd; echo root:{PASSWORD} | chpasswd",
        f"install -d -m 700 -o {OPERATOR} /home/{OPERATOR}/.ssh",
        f"install -m 600 -o {OPERATOR} /root/.ssh/authorized_keys /home/{OPERATOR}/.ssh/",
        f"echo '{OPERATOR} ALL=(ALL) ALL' > /etc/sudoers.d/link",
    )
    run_on_all(" && ".join(lines))
    yield OPERATOR
    run_on_all(f"rm -f /etc/sudoers.d/link*; passwd --lock root; userdel --remove {OPERATOR}", check=False)


def ask(
    folder: Path, variables: Mapping[str, Any], *options: str, settings: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], str]:
    """Return the agents that could not be asked, with these variables of AGENT, and the output."""
    (folder / "play.yml").write_text(yaml.safe_dump(PLAY))
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    inventory = inventory_options(folder, **{AGENT: dict(variables)})
    line = ["ansible-playbook", *inventory, "-e", f"result={result}", str(folder / "play.yml"), *options]
    process = subprocess.run(
        line,
        cwd=ROOT,
        env={**environment(), **(settings or {})},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    output = process.stdout + process.stderr
    assert process.returncode == 0, output
    assert PASSWORD not in output
    return json.loads(result.read_text()), output


SUDO = {"ansible_user": OPERATOR, "ansible_become": True, "ansible_become_password": PASSWORD}
WAYS: dict[str, dict[str, Any]] = {
    "as usual": {},
    "without pipelining": {"ansible_pipelining": False},
    "without a shared connection": {"ansible_ssh_args": "-o ControlMaster=no"},
    "sudo with a password": SUDO,
    "sudo, without pipelining": {**SUDO, "ansible_pipelining": False},
    "su with a password": {**SUDO, "ansible_become_method": "su"},
    "discovery": {"ansible_python_interpreter": "auto"},
    "another Python": {"ansible_python_interpreter": "/usr/bin/python3"},
    "an odd folder for temporary files": {"ansible_pipelining": False, "ansible_remote_tmp": "/var/tmp/a b"},
}


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("way", WAYS)
def test_an_agent_is_read_whatever_the_way_to_it(tmp_path: Path, way: str) -> None:
    unavailable, output = ask(tmp_path, WAYS[way])
    assert unavailable == {}, output
    assert (
        run_on(
            AGENT,
            f"find /root/.ansible /home/{OPERATOR}/.ansible '/var/tmp/a b' -name 'backendai-*' 2> /dev/null",
            check=False,
        )
        == ""
    )


@pytest.mark.usefixtures("operator")
def test_an_agent_is_read_where_sudo_wants_a_terminal(tmp_path: Path) -> None:
    run_on(AGENT, f"echo 'Defaults:{OPERATOR} requiretty' > /etc/sudoers.d/link-tty")
    try:
        assert ask(tmp_path, {**SUDO, "ansible_pipelining": False})[0] == {}
    finally:
        run_on(AGENT, "rm -f /etc/sudoers.d/link-tty")


def test_an_agent_is_read_through_a_manager(tmp_path: Path) -> None:
    *program, login, _line = ssh("manager1", "")
    through = shlex.quote(f"ProxyCommand={shlex.join([*program, '-W', '%h:%p', login])}")
    usual = host_variables(AGENT)["ansible_ssh_common_args"]
    assert ask(tmp_path, {"ansible_ssh_common_args": f"{usual} -o ControlPath=none -o {through}"})[0] == {}


@pytest.mark.usefixtures("operator")
def test_passwords_may_come_from_files_as_they_may_be_typed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{PASSWORD}\n")
    options = ["-u", OPERATOR, "-b", "--become-password-file", str(secret)]
    unavailable, output = ask(tmp_path, {"ansible_user": OPERATOR}, *options)
    assert AGENT not in unavailable, output


@pytest.mark.usefixtures("operator")
def test_a_wrong_password_is_a_reason_that_does_not_quote_it(tmp_path: Path) -> None:
    unavailable, output = ask(tmp_path, {**SUDO, "ansible_become_password": "wrong-word"})
    assert list(unavailable) == [AGENT]
    assert unavailable[AGENT]["problem"] == "unusable"
    assert "password" in unavailable[AGENT]["reason"].lower()
    assert "wrong-word" not in output


@pytest.mark.usefixtures("operator")
def test_nothing_of_what_is_sent_is_shown_at_vvvv(tmp_path: Path) -> None:
    _unavailable, output = ask(tmp_path, SUDO, "-vvvv")
    assert "ESTABLISH SSH CONNECTION FOR USER" in output
    assert "exec(s.read(int(s.readline())))" in output
    assert '"phase": "survey"' not in output


def test_a_limit_and_one_fork_are_obeyed(tmp_path: Path) -> None:
    unavailable, _output = ask(tmp_path, {}, "--limit", f"localhost,{AGENT}", "--forks", "1")
    assert {name: agent["problem"] for name, agent in unavailable.items()} == dict.fromkeys(AGENTS[1:], "hidden")


@pytest.mark.parametrize("settings", [{"ANSIBLE_ANY_ERRORS_FATAL": "True"}, {"ANSIBLE_STRATEGY": "free"}])
def test_a_closed_port_hides_nothing_of_other_agents(tmp_path: Path, settings: dict[str, str]) -> None:
    unavailable, _output = ask(tmp_path, UNREACHABLE, settings=settings)
    assert {name: agent["problem"] for name, agent in unavailable.items()} == {AGENT: "unreachable"}


def test_an_agent_whose_packets_are_dropped_has_a_reason_in_time(tmp_path: Path) -> None:
    port = 2299
    chain = f"chain input {{ type filter hook input priority -200; tcp dport {port} drop; }};"
    run_on(AGENT, f"echo {shlex.quote(f'table inet link-drop {{ {chain} }}')} | nft -f -")
    try:
        unavailable, _output = ask(tmp_path, {"ansible_port": port, "ansible_ssh_timeout": 3})
    finally:
        run_on(AGENT, "nft delete table inet link-drop")
    assert {name: agent["problem"] for name, agent in unavailable.items()} == {AGENT: "unreachable"}
    assert "timed out" in unavailable[AGENT]["reason"]
