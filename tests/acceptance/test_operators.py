"""The playbooks of operators, and the roles of hosts: what they say, and what is true on the hosts then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.acceptance.conftest import Training
from tests.acceptance.hosts import answers_ssh, containers, runs
from tests.integration.ansible_settings import ROOT
from tests.integration.firewalls import apply_firewall
from tests.integration.internals import OUTPUT
from tests.integration.laboratory import (
    AGENTS,
    INVENTORY,
    Run,
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
from tests.integration.sessions import Sessions, StartedSession
from tests.integration.waiting import wait_until

UNUSED_ADDRESS = "198.51.100.1"
#: The life of a session in seconds, and how long what it printed is kept, in days.
LIFETIME, KEPT_DAYS = 120, 30
ON_AGENT1 = ("-e", "agent_names=agent1")
#: Prints when a host was started.
BOOTED = "cut -d' ' -f22 /proc/1/stat"
#: A health check of the operator, and the look that runs all checks, as their timer does.
CHECK, LOOK = "/etc/backendai/health.d/acceptance", "systemctl start backendai-health.service"
RULES = "nft --stateless list table inet backendai"


class Lives(NamedTuple):
    """A session with a short life, and one whose command was killed, as if weeks ago; both on agent3."""

    short: StartedSession
    killed: Run


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    """The first test of this file that needs them starts them, the last one sees what has become of them."""
    request = {**SMALL, "designated_agents": ["agent3"]}
    saves = "trap 'echo saved; exit 3' TERM; echo began; while :; do sleep 0.1; done"
    with Sessions(tmp_path_factory.mktemp("lives")) as sessions:
        short = sessions.start(**request, command=saves, max_lifetime=LIFETIME)
        job = {**request, "command": "echo last words; kill -KILL -1", "wait": True}
        killed = sessions.create(**job, name=f"{sessions.name}-killed")
        assert sessions.run("schedule_sessions").code == 0
        # What agent3 has kept of it: each time there is so many days earlier.
        earlier = f"perl -pi -e 's/\\b1[789]\\d{{8}}\\b/$& - {(KEPT_DAYS - 1) * 86400}/ge'"
        run_on("agent3", f"{earlier} {OUTPUT}/{killed.record['id']}/session.json")
        yield Lives(short, killed)


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
    sessions: Sessions, lives: Lives, tmp_path: Path
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
    assert [*containers(lives.short.record["name"])] == ["main1"]
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
        # Another one is sick.
        run_on("agent3", f"printf '#!/bin/sh\\necho the disk dies\\nexit 1\\n' > {CHECK}; chmod 755 {CHECK}; {LOOK}")
        booted = run_on("agent1", BOOTED)
        rebooted = sessions.run("reboot_agents", *ON_AGENT1)
        assert rebooted.code == 0, rebooted.output
        assert run_on("agent1", BOOTED) != booted
        listed = sessions.run("list_agents")
        rows = {line.split()[0]: line for line in listed.output.splitlines() if " default " in line}
        assert "cordoned" in rows["agent1"], listed.output
        assert "cordoned" not in rows["agent2"], listed.output
        assert "the disk dies" in rows["agent3"], listed.output
    finally:
        run_on("agent3", f"rm -f {CHECK}; {LOOK}")
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
    booted = run_on_all(BOOTED, hosts)
    for playbook in ("remove_managers", "reboot_agents"):
        checked = run_playbook(playbook, tmp_path, {"agent_names": "agent1"}, "--check", "--diff")
        assert checked.code == 0, checked.output
    refused = run_playbook("rotate_manager_key", tmp_path, {}, "--check")
    assert refused.code != 0
    assert "A rotation of keys cannot be checked, because a new key has to be tried" in refused.text
    assert run_on_all(look, hosts, check=False) == before
    assert run_on_all(BOOTED, hosts) == booted


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
    variables = {"ssh_sources": [UNUSED_ADDRESS], "confirm_timeout": 30}
    locked = apply_firewall(variables, "--timeout", "4", "--limit", "agent2")
    assert locked.returncode != 0
    sentence = f"firewall_ssh_sources: with {UNUSED_ADDRESS}/32, agent2 accepts no new SSH connection from here"
    assert sentence in unwrapped(locked.stdout)
    wait_until(lambda: run_on("agent2", RULES, check=False) == rules[1], seconds=120)
    assert answers_ssh("manager1", address("agent2"))


def test_a_session_whose_time_is_over_is_asked_to_end_and_what_was_printed_is_kept_for_weeks(lives: Lives) -> None:
    # Who is killed has failed.
    assert (lives.killed.code != 0, lives.killed.record["exit_code"]) == (True, 137), lives.killed.output
    sessions, name = lives.short.sessions, str(lives.short.record["name"])

    def is_over() -> bool:
        assert sessions.run("schedule_sessions").code == 0
        return containers(name) == {}

    wait_until(is_over, seconds=2 * LIFETIME, pause=5)
    records = sessions.list_by_name(history=True)
    assert f"session_max_lifetime, {LIFETIME} seconds" in records[name]["reason"]
    logs = [sessions.run("session_logs", name=each) for each in (name, f"{name}-killed")]
    assert [run.code for run in logs] == [0, 0], "".join(run.output for run in logs)
    assert [text in run.text for run, text in zip(logs, ("saved", "last words"), strict=True)] == [True, True]
