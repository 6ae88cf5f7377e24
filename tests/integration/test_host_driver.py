"""Sessions on their agents' own network: names are agents' addresses, and every sshd has a port of its own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.integration.conftest import Sessions
from tests.integration.laboratory import AGENTS, Run, at_once, held, host_variables, inside, on, remains

pytestmark = pytest.mark.long

ALLOWED = ("-e", "agent_allow_host_network=true")
HOST = {
    "cluster_mode": "multi-node",
    "agent_selection": "dispersed",
    "network_driver": "host",
    "resources": {"cpu": 1, "mem": "128m"},
}
HOSTNAMES = ["main1", "sub1", "sub2", "sub3"]


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Four containers over three agents, of two engines."""
    made = Sessions(tmp_path_factory.mktemp("host"))
    run = made.create(*ALLOWED, **HOST, cluster_size=4)
    assert run.code == 0, run.output
    yield run
    assert made.terminate().code == 0


def ports(record: dict[str, Any]) -> dict[tuple[str, str], int]:
    """Return where each container of a session listens, by its agent and its hostname."""
    plans = [one["plan"] for plans in held().values() for one in plans if one["plan"]["id"] == record["id"]]
    return {(kernel["agent"], kernel["hostname"]): kernel["ssh_port"] for kernel in plans[0]["kernels"]}


def greeting(host: str, address: str, port: int) -> str:
    """Return what a host of the lab is told first at an address; empty where nobody answers."""
    line = f"timeout 2 bash -c 'exec 3<>/dev/tcp/{address}/{port}; head -c 4 <&3'"
    return on(host, line, check=False).strip()


def test_without_the_agents_permission_it_is_refused_and_nothing_is_made(sessions: Sessions) -> None:
    before = remains()
    refused = sessions.create(**HOST, cluster_size=2)
    assert refused.code != 0
    assert "session_network_driver: 'host' needs agent_allow_host_network: true" in refused.said
    assert "none of agent1, agent2, agent3 has it" in refused.said
    assert refused.record["status"] == "ERROR"
    assert remains() == before


def test_it_runs_on_all_agents_under_their_addresses(four: Run) -> None:
    record = four.record
    assert (record["status"], record["cluster_mode"]) == ("RUNNING", "multi-node")
    assert record["network"] == {"driver": "host", "name": "host", "subnet": None, "mtu": 1500, "vni": None}
    assert sorted({kernel["agent"] for kernel in record["kernels"]}) == list(AGENTS)
    for kernel in record["kernels"]:
        assert kernel["address"] == host_variables(kernel["agent"])["ansible_host"]
        hosts = inside(kernel, "cat", "/etc/hosts").splitlines()
        assert hosts == [
            "127.0.0.1 localhost",
            *(f"{one['address']} {one['hostname']}" for one in record["kernels"]),
        ]


@pytest.mark.parametrize("user", ["work", "root"])
def test_every_container_logs_in_to_every_other_by_name_alone(four: Run, user: str) -> None:
    line = "for host in main1 sub1 sub2 sub3; do ssh -o BatchMode=yes $host 'hostname; id -un'; done"
    calls = [partial(inside, kernel, "sh", "-c", line, user=user) for kernel in four.record["kernels"]]
    everywhere = [word for hostname in HOSTNAMES for word in (hostname, "work")]
    assert [said.split() for said in at_once(*calls)] == [everywhere] * 4


def test_files_are_copied_by_name_alone(four: Run) -> None:
    main, last = four.record["kernels"][0], four.record["kernels"][-1]
    inside(main, "sh", "-c", "echo from main1 > /tmp/letter && scp -q -o BatchMode=yes /tmp/letter sub3:letter")
    assert inside(last, "cat", "/home/work/letter") == "from main1\n"


def test_a_host_key_that_is_another_is_not_taken(four: Run) -> None:
    main = four.record["kernels"][0]
    line = "sed 's/^.sub2.:[^ ]*/[nobody]:1/' ~/.ssh/known_hosts > /tmp/known && "
    line += "ssh -o BatchMode=yes -o UserKnownHostsFile=/tmp/known sub2 hostname"
    assert "Host key verification failed" in inside(main, "sh", "-c", f"HOME=/home/work; {line}", check=False)


def test_frameworks_are_told_the_interface_of_the_underlay(four: Run) -> None:
    for kernel in four.record["kernels"]:
        links = [line.split() for line in on(kernel["agent"], "ip -o -4 addr show").splitlines()]
        (interface,) = [words[1] for words in links if words[3].startswith(f"{kernel['address']}/")]
        for text in (inside(kernel, "env"), inside(kernel, "ssh", kernel["hostname"], "env")):
            seen = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
            assert (seen["NCCL_SOCKET_IFNAME"], seen["GLOO_SOCKET_IFNAME"]) == (interface, interface)
            assert (seen["MASTER_ADDR"], seen["BACKENDAI_CLUSTER_HOSTS"]) == ("main1", ",".join(HOSTNAMES))


def test_only_the_agents_of_the_session_reach_its_sshds_and_gateways_that_of_main1(
    four: Run, sessions: Sessions
) -> None:
    run = sessions.create(*ALLOWED, **HOST, cluster_size=2, designated_agents=["agent1", "agent2"])
    assert run.code == 0, run.output
    for record, agents in ((four.record, set(AGENTS)), (run.record, {"agent1", "agent2"})):
        for (agent, hostname), port in ports(record).items():
            address = host_variables(agent)["ansible_host"]
            asking = (*AGENTS, "gateway1", "user1")
            said = dict(zip(asking, at_once(*[partial(greeting, host, address, port) for host in asking]), strict=True))
            gateways = {"gateway1"} if hostname == "main1" else set()
            assert {host for host, greeted in said.items() if greeted == "SSH-"} == agents | gateways


def test_sessions_on_the_same_agents_get_different_ports_and_leave_none_open(four: Run, sessions: Sessions) -> None:
    run = sessions.create(*ALLOWED, **HOST, cluster_size=4)
    assert run.code == 0, run.output
    ours, theirs = ports(run.record), ports(four.record)
    assert len({(agent, port) for found in (ours, theirs) for (agent, _name), port in found.items()}) == 8
    again = sessions.create(*ALLOWED, **HOST, cluster_size=4)
    assert (again.code, again.changed) == (0, 0), again.output
    assert sessions.terminate().code == 0
    for (agent, _hostname), port in ours.items():
        assert str(port) not in on(agent, "ss -ltn; nft list set inet backendai ssh_ports")
