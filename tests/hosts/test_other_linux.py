"""An agent of a Linux that nobody knows: without a package manager, the kit's programs, and a package of the SDK."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.hosts.kits import build_kit
from tests.integration.laboratory import BUSYBOX, PYTHON, Run, in_parallel
from tests.integration.removals import Hosts
from tests.integration.session_requests import SMALL
from tests.integration.spare_hosts import SpareHost, spare_hosts
from tests.integration.waiting import wait_until
from tests.lab.identity import Host

OTHER, USUAL = "other1", "usual1"
VENV = "/opt/sdk/bin/python"
#: What an operator of another Linux has installed by its own means, all of it without a package manager afterwards. The
#: sshd that Ansible uses is no program of the kit.
PREPARE = f"""
set -e
apt-get update -q
apt-get install -y -q --no-install-recommends docker.io iptables python3-docker python3-venv
python3 -m venv --without-pip {VENV.removesuffix("/bin/python")}
cp -a /usr/lib/python3/dist-packages/. /opt/sdk/lib/python3.*/site-packages/
rm -rf /usr/lib/python3/dist-packages/docker
cp /usr/sbin/sshd /opt/sshd
sed 's|/usr/sbin/sshd|/opt/sshd|' /lib/systemd/system/ssh.service > /etc/systemd/system/ssh.service
systemctl daemon-reload
systemctl restart ssh.service
rm -f /usr/sbin/sshd /usr/bin/ssh /usr/bin/scp /usr/bin/sftp /usr/bin/ssh-* /bin/busybox /usr/bin/shellinaboxd
rm -f /usr/bin/apt* /usr/bin/dpkg* /usr/sbin/dpkg*
rm -f /etc/debian_version /etc/os-release
printf 'ID=other\\nNAME="Other Linux"\\nVERSION_ID=1\\n' > /etc/os-release
"""
SECONDS = 60


class Agents(NamedTuple):
    """The agent, a usual one, and a kit that was made on the control node."""

    hosts: Hosts
    kit: Path
    built: Run

    @property
    def other(self) -> SpareHost:
        return self.hosts.hosts[0]

    def session(self, playbook: str, **variables: object) -> Run:
        """Run a playbook with ``session_*`` variables given without their prefix."""
        run = self.hosts.play(playbook, **{f"session_{name}": value for name, value in variables.items()})
        assert run.code == 0, run.output
        return run


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    folder = tmp_path_factory.mktemp("other")
    kit, built = build_kit(folder)
    wanted = [Host(name, "agents", "bookworm", 85 + number) for number, name in enumerate((OTHER, USUAL))]
    own = {"agent_install": False, "agent_python": VENV, "agent_kit": str(kit)}
    with spare_hosts(folder, *wanted, variables={OTHER: own}) as (hosts, options):
        hosts[0].run(f"sh -c {shlex.quote(PREPARE)}")
        yield Agents(Hosts(hosts, options, folder), kit, built)


def test_a_kit_says_what_it_is_made_of(agents: Agents) -> None:
    assert f"{agents.kit}: a kit for x86_64, of busybox-static " in agents.built.text
    assert "openssh-server 1:" in agents.built.text


def test_all_that_it_lacks_is_said_at_once_and_nothing_is_changed(agents: Agents) -> None:
    agents.other.run("systemctl stop docker.socket docker.service; mv /usr/sbin/sysctl /root")
    try:
        given = {"agent_kit": "host", "agent_python": "/usr/bin/python3"}
        run = agents.hosts.play("provision_agents", agent_group=OTHER, **given)
    finally:
        agents.other.run("mv /root/sysctl /usr/sbin; systemctl start docker.service")
    assert run.code != 0
    assert "This host lacks 4 things: sysctl is missing, and an agent needs it." in run.text
    for said in (
        "This host has no busybox, sshd, ssh, scp, sftp, ssh-keygen, shellinaboxd for the runtime kit: install",
        "/usr/bin/python3 has no Docker SDK for Python: install it for /usr/bin/python3, or name the Python of a virt",
        "agent_install is false, and no Docker engine answers at unix:///var/run/docker.sock: systemctl enable --now",
    ):
        assert said in run.text
    assert run.changed == 0


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"agent_python": "/usr/bin/python3"}, "/usr/bin/python3 has no Docker SDK for Python: "),
        ({"agent_kit": "/nowhere/kit.tar.gz"}, "agent_kit: there is no kit at /nowhere/kit.tar.gz: copy it again, or"),
        ({"agent_kit": "damaged"}, "is damaged, or no kit ("),
    ],
)
def test_a_kit_or_a_python_that_it_cannot_use_is_refused_before_anything_is_changed(
    agents: Agents, variables: dict[str, str], said: str
) -> None:
    damaged = agents.kit.with_name("damaged.tar.gz")
    damaged.write_bytes(agents.kit.read_bytes()[:-1000])
    given = {name: str(damaged) if value == "damaged" else value for name, value in variables.items()}
    run = agents.hosts.play("provision_agents", agent_group=OTHER, **given)
    assert run.code != 0
    assert said in run.text
    assert run.changed == 0


def test_it_is_provisioned_beside_a_usual_agent_and_a_second_time_changes_nothing(agents: Agents) -> None:
    first = agents.hosts.play("provision_agents")
    assert first.code == 0, first.output
    again = agents.hosts.play("provision_agents")
    assert (again.code, again.changed) == (0, 0), again.output
    in_parallel(*(host.load_images for host in agents.hosts.hosts))


def test_a_session_spans_it_and_a_usual_agent_and_comes_back_after_a_restart_of_the_engine(agents: Agents) -> None:
    two = {"cluster_mode": "multi-node", "cluster_size": 2, "agent_selection": "dispersed", **SMALL}
    run = agents.session("create_session", name="both", image=BUSYBOX, designated_agents=[OTHER, USUAL], **two)
    assert {kernel["agent"] for kernel in run.record["kernels"]} == {OTHER, USUAL}
    agents.session("verify_session", name="both")
    containers = "docker ps --quiet --no-trunc --filter label=ai.backend.session-id"
    before = agents.other.run(containers)
    assert before
    agents.other.run("systemctl restart docker.service")
    wait_until(lambda: agents.other.run(containers) == before, SECONDS)
    agents.session("verify_session", name="both")
    agents.session("terminate_session", name="both")
    failed = agents.other.run("systemctl list-units --failed --plain --no-legend 'backendai*'")
    assert failed == ""


def test_a_session_starts_there_as_fast_as_on_a_usual_agent(agents: Agents) -> None:
    took: dict[str, float] = {}
    for name in (OTHER, USUAL):
        begun = time.monotonic()
        agents.session("create_session", name=name, image=PYTHON, cluster_size=4, designated_agents=[name], **SMALL)
        took[name] = time.monotonic() - begun
        agents.session("verify_session", name=name)
        agents.session("terminate_session", name=name)
    print(f"four containers: {took}")
    assert took[OTHER] < 1.5 * took[USUAL] + 1


def test_it_is_given_back_as_it_was_but_for_what_its_engine_has(agents: Agents) -> None:
    run = agents.hosts.play("remove_agents", agent_names=[OTHER])
    assert run.code == 0, run.output
    own = re.compile(rf"{OTHER} (?!rules|/var/lib/(docker|containerd)/)")
    assert [line for line in agents.hosts.differences() if own.match(line)] == []
    seen = "nft list tables; docker network ls; docker ps --all --format '{{.Names}}'"
    assert "backendai" not in agents.other.run(seen)
