"""An agent of Debian 11, as old as RHEL 9, beside one of Debian 12: what it lacks, sessions, firewall, removal.

The tests belong in this order: it is refused first, then provisioned and used, and given back at the end.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.hosts.kits import build_kit
from tests.integration.containers import LOGIN
from tests.integration.laboratory import PYTHON, Run, in_parallel, run_playbook
from tests.integration.probes import scan
from tests.integration.removals import Hosts
from tests.integration.session_requests import TWO
from tests.integration.spare_hosts import SpareHost, spare_hosts
from tests.integration.waiting import wait_until
from tests.lab.command import LabError
from tests.lab.identity import Host

OLD, USUAL = "old1", "old2"
GATEWAY = Host("old3", "gateways", "bullseye", 90)
NAME = "old"
SECONDS = 90
#: Of SSH, of the engine, and those that agents publish.
PORTS = "22,2375-2377,8000,30000-30100"
#: What it has, by the program that says so.
VERSIONS = {
    "python3 -c 'import platform, docker; print(platform.python_version(), docker.__version__)'": ("3.9.", "4.1."),
    "nft --version": ("v0.9.8",),
    "docker version --format '{{.Server.Version}}'": ("20.10.5",),
    "ldd --version": ("2.31",),
    "ip -Version": ("iproute2-5.",),
    "systemctl --version": ("systemd 247",),
}
#: In one container: it sends back a digest of what it gets. In another: it sends 8 MiB, and prints what comes back.
SERVER = """
import hashlib, socket
served = socket.create_server(("", 7777)).accept()[0]
digest = hashlib.sha256()
while data := served.recv(65536):
    digest.update(data)
served.sendall(digest.hexdigest().encode())
"""
CLIENT = """
import hashlib, os, socket, sys, threading, time
data = os.urandom(8 << 20)
for attempt in range(50):
    try:
        opened = socket.create_connection((sys.argv[1], 7777), 20)
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
sender = threading.Thread(target=lambda: (opened.sendall(data), opened.shutdown(socket.SHUT_WR)))
sender.start()
answer = opened.makefile().read()
sender.join()
print(answer == hashlib.sha256(data).hexdigest())
"""


class Agents(NamedTuple):
    """Both agents, and the options for a playbook that also probes them."""

    hosts: Hosts
    options: list[str]
    folder: Path

    @property
    def old(self) -> SpareHost:
        return self.hosts.hosts[0]

    @property
    def addresses(self) -> list[str]:
        return [host.address for host in self.hosts.hosts]

    def session(self, playbook: str, **variables: object) -> Run:
        """Run a playbook with ``session_*`` variables given without their prefix."""
        run = self.hosts.play(playbook, **{f"session_{name}": value for name, value in variables.items()})
        assert run.code == 0, run.output
        return run

    def run_in(self, agent: str, *words: str, detached: bool = False) -> str:
        """Run a command in the container of the session on an agent."""
        host = next(host for host in self.hosts.hosts if host.name == agent)
        name = host.run("docker ps --format '{{.Names}}' --filter label=ai.backend.session-id").strip()
        return host.run(shlex.join(["docker", "exec", *(["--detach"] if detached else []), name, *words]))


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    folder = tmp_path_factory.mktemp("old")
    kit, _built = build_kit(folder)
    wanted = (Host(OLD, "agents", "bullseye", 88), Host(USUAL, "agents", "bookworm", 89))
    with spare_hosts(folder, *wanted, variables={OLD: {"agent_kit": str(kit)}}) as (hosts, options):
        yield Agents(Hosts(hosts, options, folder), options, folder)


@pytest.fixture
def names(agents: Agents) -> dict[str, str]:
    """Return the hostname of the container on each agent."""
    return {agent: agents.run_in(agent, "hostname").strip() for agent in (OLD, USUAL)}


def test_without_a_kit_it_is_refused_before_anything_is_changed(agents: Agents) -> None:
    run = agents.hosts.play("provision_agents", agent_group=OLD, agent_kit="host")
    assert run.code != 0
    assert "This host has glibc 2.31, and a kit of its programs needs glibc 2.34" in run.text
    assert run.changed == 0
    assert (agents.old.address, "22/open") in scan(agents.addresses, PORTS)


def test_as_a_gateway_it_is_refused_for_its_haproxy(tmp_path: Path) -> None:
    with spare_hosts(tmp_path, GATEWAY) as (_hosts, options):
        run = run_playbook("provision_gateways", tmp_path, {}, *options, "--limit", f"localhost,{GATEWAY.name}")
    assert run.code != 0
    assert "has HAProxy 2.2.9, and a gateway needs HAProxy 2.6: Debian 12 and later have it" in run.text
    assert run.changed == 0


def test_it_is_provisioned_with_what_it_has_and_a_second_time_changes_nothing(agents: Agents) -> None:
    first = agents.hosts.play("provision_agents")
    assert first.code == 0, first.output
    for line, versions in VERSIONS.items():
        printed = agents.old.run(line)
        assert [version for version in versions if version not in printed] == []
    again = agents.hosts.play("provision_agents")
    assert (again.code, again.changed) == (0, 0), again.output
    in_parallel(*(host.load_images for host in agents.hosts.hosts))


def test_a_session_spans_both(agents: Agents) -> None:
    run = agents.session("create_session", name=NAME, image=PYTHON, designated_agents=[OLD, USUAL], **TWO)
    assert run.record["status"] == "RUNNING", run.output
    assert {kernel["agent"] for kernel in run.record["kernels"]} == {OLD, USUAL}
    agents.session("verify_session", name=NAME)


@pytest.mark.parametrize(("here", "there"), [(OLD, USUAL), (USUAL, OLD)])
def test_its_containers_log_in_to_each_other(agents: Agents, names: dict[str, str], here: str, there: str) -> None:
    assert agents.run_in(here, *LOGIN, names[there], "hostname").strip() == names[there]


@pytest.mark.parametrize(("here", "there"), [(OLD, USUAL), (USUAL, OLD)])
def test_a_thread_of_a_container_sends_data_to_the_other(
    agents: Agents, names: dict[str, str], here: str, there: str
) -> None:
    agents.run_in(there, "python3", "-c", SERVER, detached=True)
    assert agents.run_in(here, "python3", "-c", CLIENT, names[there]) == "True\n"


def test_an_outsider_finds_no_open_port(agents: Agents) -> None:
    """The first test has found that of SSH."""
    assert scan(agents.addresses, PORTS) == set()


def test_isolation_is_verified_on_both(agents: Agents) -> None:
    limit = ["--limit", f"localhost,user1,{OLD},{USUAL}"]
    variables = {"firewall_probe_ports": PORTS}
    run = run_playbook("verify_isolation", agents.folder, variables, *agents.options, *limit)
    # Hosts of the lab are not in this run, so it is not conclusive about them.
    assert {each["target"] for each in run.record["probed"]} >= {OLD, USUAL}, run.output
    assert [each for each in run.record["findings"] if each["target"] in (OLD, USUAL)] == []


def test_it_is_listed_as_one_that_takes_sessions(agents: Agents) -> None:
    path = agents.folder / "agents.json"
    run = agents.hosts.play("list_agents", agent_list_path=str(path))
    assert run.code == 0, run.output
    listed = {agent["name"]: agent for agent in json.loads(path.read_text())["agents"]}
    assert (listed[OLD]["status"], listed[OLD]["containers"]) == ("ready", 1), run.output
    assert "docker" not in run.text.partition(OLD)[2], "nothing is warned of"


def test_a_reboot_leaves_it_closed_and_its_session_comes_back(agents: Agents) -> None:
    started, shown = "cut -d' ' -f22 /proc/1/stat", "docker ps --quiet --filter label=ai.backend.session-id"
    before, containers = agents.old.run(started), agents.old.run(shown)
    assert containers

    def restored() -> bool:
        with contextlib.suppress(LabError):
            return agents.old.run(started) != before and agents.old.run(shown) == containers
        return False

    with contextlib.suppress(LabError):
        agents.old.run("systemctl reboot")
    wait_until(restored, SECONDS)
    agents.session("verify_session", name=NAME)
    assert scan([agents.old.address], PORTS) == set()
    assert agents.old.run("systemctl list-units --failed --plain --no-legend 'backendai*'") == ""


def test_given_back_it_is_as_it_was(agents: Agents) -> None:
    agents.session("terminate_session", name=NAME)
    run = agents.hosts.play("remove_agents")
    assert run.code == 0, run.output
    assert agents.hosts.differences() == []
    assert (agents.old.address, "22/open") in scan(agents.addresses, PORTS)
