"""The playbooks of operators, and the roles of hosts: what they say, and what is true on the hosts then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import Training
from tests.acceptance.hosts import answers_ssh, containers, runs
from tests.integration.ansible_settings import ROOT
from tests.integration.firewalls import apply_firewall
from tests.integration.laboratory import (
    AGENTS,
    INVENTORY,
    address,
    agent_state,
    ansible,
    run_on,
    run_on_all,
    run_playbook,
    unwrapped,
)
from tests.integration.reconciliation import reconcile_paused
from tests.integration.session_requests import SMALL, TWO
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until

UNUSED_ADDRESS = "198.51.100.1"
ON_AGENT1 = ("-e", "agent_names=agent1")
RULES = "nft --stateless list table inet backendai"


def test_containers_are_hosts_of_the_inventory_plugin(train: Training, tmp_path: Path) -> None:
    group = f"session_{train.name}".replace("-", "_")
    words = [
        "ansible",
        "-i",
        INVENTORY,
        "-i",
        ROOT / "inventory" / "sessions.yml",
        group,
        "-m",
        "raw",
        "-a",
        "hostname",
    ]
    asked = ansible(*words, "-t", tmp_path)
    assert asked.returncode == 0, asked.stdout
    printed = {path.name: json.loads(path.read_text())["stdout"].strip() for path in tmp_path.iterdir()}
    assert printed == {f"{hostname}.{train.name}": hostname for hostname in containers(train.name)}


def test_a_command_in_every_container_ends_the_session_and_its_output_is_kept(
    sessions: Sessions, tmp_path: Path
) -> None:
    command = (
        "echo $BACKENDAI_CLUSTER_HOST of $BACKENDAI_CLUSTER_SIZE; [ $BACKENDAI_CLUSTER_LOCAL_RANK != 0 ] || sleep 2"
    )
    done = sessions.create(**TWO, command=command, command_scope="all", wait=True)
    assert done.code == 0, done.output
    page = tmp_path / "page.html"
    assert sessions.run("schedule_sessions", page_path=str(page)).code == 0
    assert "agent1" in page.read_text()
    assert page.stat().st_mode & 0o777 == 0o644
    assert containers(sessions.name) == {}
    logs = sessions.run("session_logs", name=sessions.name)
    assert logs.code == 0, logs.output
    for hostname in ("main1", "sub1"):
        assert f"{hostname} of 2" in logs.text


def test_a_cordoned_agent_takes_no_session_until_it_is_resumed(sessions: Sessions) -> None:
    request = {**SMALL, "designated_agents": ["agent1"]}
    cordoned = sessions.run("cordon_agents", *ON_AGENT1, "-e", "agent_cordon_reason=disk")
    try:
        assert "agent1 takes no new sessions: cordoned by root (disk)" in cordoned.output
        waiting = sessions.create(**request)
        assert waiting.record["status"] == "PENDING", waiting.output
        assert "agent1 is cordoned by root (disk)" in waiting.text
        assert containers(sessions.name) == {}
        listed = sessions.run("list_agents")
        rows = {line.split()[0]: line for line in listed.output.splitlines() if " default " in line}
        assert "cordoned" in rows["agent1"], listed.output
        assert "cordoned" not in rows["agent2"], listed.output
    finally:
        resumed = sessions.run("resume_agents", *ON_AGENT1)
    assert resumed.code == 0, resumed.output
    assert [container["agent"] for container in containers(sessions.name).values()] == ["agent1"]


REFUSALS: list[tuple[str, dict[str, str], str]] = [
    ("remove_agents", {"agent_names": "agent1"}, "sessions are on this agent: "),
    ("remove_gateways", {}, "this gateway has routes to "),
    ("drain_agents", {"agent_names": "agent1,agent2,agent3"}, "set agent_all_confirmed=true to confirm"),
    ("reboot_agents", {"agent_names": "agnt1"}, "'agnt1' is not an agent of the inventory; did you mean agent1?"),
]


def test_what_would_interrupt_people_is_refused(train: Training, tmp_path: Path) -> None:
    before, state = containers(train.name), agent_state()
    for playbook, variables, refusal in REFUSALS:
        refused = run_playbook(playbook, tmp_path, variables)
        assert (refused.code != 0, refused.changed) == (True, 0), refused.output
        assert refusal in refused.text, refused.output
    assert {name: runs(container) for name, container in containers(train.name).items()} == {
        name: runs(container) for name, container in before.items()
    }
    assert agent_state() == state


def test_removals_and_a_new_key_are_only_shown_in_check_mode(tmp_path: Path) -> None:
    """They are done for real on hosts of their own, by molecule and the tests of `make test-all`."""
    look = "sha256sum /var/lib/backendai*/.ssh/* /etc/systemd/system/backendai* /etc/sudoers.d/* 2> /dev/null"
    hosts = (*AGENTS, "gateway1", "manager1")
    before = run_on_all(look, hosts, check=False)
    booted = run_on_all("cut -d' ' -f22 /proc/1/stat", hosts)
    for playbook in ("remove_managers", "reboot_agents"):
        checked = run_playbook(playbook, tmp_path, {"agent_names": "agent1"}, "--check", "--diff")
        assert checked.code == 0, checked.output
    refused = run_playbook("rotate_manager_key", tmp_path, {}, "--check")
    assert refused.code != 0
    assert "A rotation of keys cannot be checked, because a new key has to be tried" in refused.text
    assert run_on_all(look, hosts, check=False) == before
    assert run_on_all("cut -d' ' -f22 /proc/1/stat", hosts) == booted


def test_isolation_is_proven_from_outside(train: Training, tmp_path: Path) -> None:
    variables = {"firewall_probe_ports": "22,443,2375-2377,30000-30100"}
    proven = run_playbook("verify_isolation", tmp_path, variables)
    assert proven.code == 0, proven.output
    (entry,) = containers(train.name)["main1"]["NetworkSettings"]["Ports"]["22/tcp"][:1]
    # A rule that is missing is found.
    agent = containers(train.name)["main1"]["agent"]
    with reconcile_paused(agent):
        run_on(agent, "nft insert rule inet backendai ingress accept")
        broken = run_playbook("verify_isolation", tmp_path, {"firewall_probe_ports": f"22,{entry['HostPort']}"})
    assert broken.code != 0
    assert agent in broken.text


@pytest.fixture
def rules() -> Iterator[list[str]]:
    """The rules of each agent; they are the same afterwards."""
    before = run_on_all(RULES)
    yield before
    assert run_on_all(RULES) == before


def test_rules_that_lock_the_operator_out_are_rolled_back(rules: list[str]) -> None:
    locked = apply_firewall({"ssh_sources": [UNUSED_ADDRESS]}, "--timeout", "4", "--limit", "agent2")
    assert locked.returncode != 0
    sentence = f"firewall_ssh_sources: with {UNUSED_ADDRESS}/32, agent2 accepts no new SSH connection from here"
    assert sentence in unwrapped(locked.stdout)
    wait_until(lambda: run_on("agent2", RULES, check=False) == rules[1], seconds=120)
    assert answers_ssh("manager1", address("agent2"))
