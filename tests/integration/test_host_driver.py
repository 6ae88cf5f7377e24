"""Sessions on the host network: names resolve to agents' addresses, and every sshd has its own port."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.integration.containers import parse_environment
from tests.integration.internals import SET_SSH_PORTS, TABLE
from tests.integration.laboratory import AGENTS, address, in_parallel, run_in, run_on, stored_sessions
from tests.integration.probes import read_banner
from tests.integration.session_requests import FOUR, SMALL
from tests.integration.sessions import StartedSession, started_session

pytestmark = pytest.mark.network

ALLOWED = ("-e", "agent_allow_host_network=true")
HOST = {**FOUR, **SMALL, "network_driver": "host"}
HOSTNAMES = ["main1", "sub1", "sub2", "sub3"]


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """Four containers on three agents with two engine versions."""
    with started_session(tmp_path_factory.mktemp("four"), *ALLOWED, **HOST) as session:
        yield session


@pytest.fixture(scope="module")
def two(four: StartedSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """Another session on two of the same agents."""
    request = {**HOST, "cluster_size": 2, "designated_agents": ["agent1", "agent2"]}
    with started_session(tmp_path_factory.mktemp("two"), *ALLOWED, **request) as session:
        assert session.record["id"] != four.record["id"]
        yield session


def ports(session: StartedSession) -> dict[tuple[str, str], int]:
    """Return the SSH port of each container of a session, by agent and hostname."""
    plans = [stored["plan"] for sessions in stored_sessions().values() for stored in sessions]
    plan = next(plan for plan in plans if plan["id"] == session.record["id"])
    return {(kernel["agent"], kernel["hostname"]): kernel["ssh_port"] for kernel in plan["kernels"]}


def test_it_runs_on_all_agents_under_their_addresses(four: StartedSession) -> None:
    record = four.record
    assert (record["status"], record["cluster_mode"]) == ("RUNNING", "multi-node")
    assert record["network"] == {"driver": "host", "name": "host", "subnet": None, "mtu": 1500, "vni": None}
    assert sorted({kernel["agent"] for kernel in record["kernels"]}) == list(AGENTS)
    for kernel in record["kernels"]:
        assert kernel["address"] == address(kernel["agent"])
        hosts = run_in(kernel, "cat", "/etc/hosts").splitlines()
        assert hosts == [
            "127.0.0.1 localhost",
            *(f"{peer['address']} {peer['hostname']}" for peer in record["kernels"]),
            *(f"::ffff:{peer['address']} {peer['hostname']}.ipv4-mapped" for peer in record["kernels"]),
        ]


def test_every_container_logs_in_to_every_other_by_name_alone(four: StartedSession) -> None:
    line = "for host in main1 sub1 sub2 sub3; do ssh -o BatchMode=yes $host 'hostname; id -un'; done"
    calls = [partial(run_in, kernel, "sh", "-c", line) for kernel in four.kernels]
    expected = [word for hostname in HOSTNAMES for word in (hostname, "work")]
    assert [output.split() for output in in_parallel(*calls)] == [expected] * 4


def test_wrong_host_key_is_rejected(four: StartedSession) -> None:
    main = four.kernels[0]
    line = "sed 's/^sub2,[^ ]*/nobody/' ~/.ssh/known_hosts > /tmp/known && "
    line += "ssh -o BatchMode=yes -o UserKnownHostsFile=/tmp/known sub2 hostname"
    assert "Host key verification failed" in run_in(main, "sh", "-c", f"HOME=/home/work; {line}", check=False)


def test_frameworks_get_the_underlay_interface(four: StartedSession) -> None:
    for kernel in four.kernels:
        links = [line.split() for line in run_on(kernel["agent"], "ip -o -4 addr show").splitlines()]
        (interface,) = [words[1] for words in links if words[3].startswith(f"{kernel['address']}/")]
        for text in (run_in(kernel, "env"), run_in(kernel, "ssh", kernel["hostname"], "env")):
            environment = parse_environment(text)
            assert (environment["NCCL_SOCKET_IFNAME"], environment["GLOO_SOCKET_IFNAME"]) == (interface, interface)
            assert (environment["MASTER_ADDR"], environment["BACKENDAI_CLUSTER_HOSTS"]) == (
                "main1",
                ",".join(HOSTNAMES),
            )


def test_only_agents_of_the_session_and_gateways_reach_its_sshds(four: StartedSession, two: StartedSession) -> None:
    sources = (*AGENTS, "gateway1", "user1")
    expected = {
        (agent, port): {*agents, *(["gateway1"] if hostname == "main1" else [])}
        for session, agents in ((four, AGENTS), (two, ("agent1", "agent2")))
        for (agent, hostname), port in ports(session).items()
    }
    asked = [(host, agent, port) for agent, port in expected for host in sources]
    banners = in_parallel(*[partial(read_banner, host, address(agent), port) for host, agent, port in asked])
    answered = {each for each, text in zip(asked, banners, strict=True) if text.startswith("SSH-")}
    assert {at: {host for host, *there in answered if (*there,) == at} for at in expected} == expected


def test_sessions_on_one_agent_get_different_ports_and_close_them(four: StartedSession, two: StartedSession) -> None:
    ports_of_two, ports_of_four = ports(two), ports(four)
    taken = [(agent, port) for session in (ports_of_two, ports_of_four) for (agent, _hostname), port in session.items()]
    assert len(set(taken)) == len(taken) == 6
    rerun = two.create_again(*ALLOWED)
    assert (rerun.code, rerun.changed) == (0, 0), rerun.output
    assert two.sessions.terminate().code == 0
    for (agent, _hostname), port in ports_of_two.items():
        assert str(port) not in run_on(agent, f"ss -ltn; nft list set {TABLE} {SET_SSH_PORTS}")
