"""The session check and the commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.openings import openings_of_session
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import CheckFailedError
from ansible_collections.backendai.cluster.plugins.module_utils._network.reachability import (
    UNUSED_PORT,
    PeerTarget,
    ProbeSource,
    Reachability,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session import check
from ansible_collections.backendai.cluster.plugins.module_utils._session.check import check_and_commit, find_failures
from ansible_collections.backendai.cluster.plugins.module_utils._session.claim_guard import ClaimLostError
from ansible_collections.backendai.cluster.plugins.module_utils._session.ssh_check import LoginReport
from tests.unit.builders import SESSION_ID, held, own_labels, plan
from tests.unit.fake_docker import FakeDocker
from tests.unit.foreign_firewalls import Host, on_host

MADE = plan({"agent1": 2, "agent2": 1})
PIDS = {"main1": 101, "sub1": 102, "sub2": 103}
Probing = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def probing(monkeypatch: pytest.MonkeyPatch) -> Probing:
    """Return a function that sets the probe results, and returns the recorded probes."""
    probed: list[tuple[Any, ...]] = []

    def set_results(*met: Reachability) -> list[tuple[Any, ...]]:
        def fake_check(*probe: Any) -> list[Reachability]:
            probed.append(probe)
            return list(met)

        monkeypatch.setattr(check, "check_reachability", fake_check)
        return probed

    set_results(Reachability("main1", "sub1", True, True))
    return set_results


@pytest.fixture(autouse=True)
def listening(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return the sshds, by process and port, that listen only when they are asked for the second time."""
    late: list[tuple[int, int]] = []

    def listens(pid: int, port: int) -> bool:
        if (pid, port) in late:
            late.remove((pid, port))
            return False
        return True

    monkeypatch.setattr(check, "listens", listens)
    monkeypatch.setattr(check, "runs", lambda pid: pid in PIDS.values())
    return late


@pytest.fixture(autouse=True)
def logins(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], str]:
    """Return the errors of logins by container and peer; all other logins succeed."""
    errors: dict[tuple[str, str], str] = {}

    def ask(_client: FakeDocker, container: str, peers: list[str]) -> LoginReport:
        hostname = container.rpartition("-")[2]
        return LoginReport({}, {peer: errors[hostname, peer] for peer in peers if (hostname, peer) in errors})

    def passes(_client: FakeDocker, container: str, peers: list[str]) -> bool:
        chain = [container.rpartition("-")[2], *peers]
        return not {*zip(chain, peers, strict=False)} & errors.keys()

    monkeypatch.setattr(check, "check_logins", ask)
    monkeypatch.setattr(check, "chain_passes", passes)
    return errors


def run_containers(engine: FakeDocker, *hostnames: str, state: str = "running") -> None:
    for hostname in hostnames:
        bears = {**own_labels(hostname), labels.IMAGE_DIGEST: "sha256:1"}
        name = f"backendai-train-llm-{hostname}"
        container = {"Id": f"id-{hostname}", "Names": [f"/{name}"], "Labels": bears, "State": state}
        engine.made.append({**container, "Pid": PIDS[hostname]})


@pytest.mark.usefixtures("probing")
def test_a_healthy_slice_has_no_findings(engine: Any, store: Store) -> None:
    run_containers(engine, "main1", "sub1")
    assert find_failures(engine, store, held(MADE), 1) == []


def test_every_container_here_is_probed_towards_every_container_anywhere(
    engine: Any, store: Store, probing: Probing
) -> None:
    run_containers(engine, "main1", "sub1")
    probed = probing()
    find_failures(engine, store, held(MADE), 1)
    assert probed == [
        (
            [ProbeSource("main1", 101), ProbeSource("sub1", 102)],
            [PeerTarget(kernel.hostname, kernel.address or "", UNUSED_PORT, sshd=False) for kernel in MADE.kernels],
            1450,
            1,
        )
    ]


@pytest.mark.usefixtures("probing")
def test_containers_that_are_missing_or_stopped_are_named(engine: Any, store: Store) -> None:
    run_containers(engine, "sub1", state="exited")
    assert find_failures(engine, store, held(MADE), 1) == ["main1 is missing on agent1", "sub1 is exited on agent1"]


def test_a_firewall_of_others_that_closes_the_tunnel_is_named_with_unreachable_pairs(
    engine: Any, store: Store, probing: Probing, tmp_path: Path
) -> None:
    run_containers(engine, "main1", "sub1")
    probing(Reachability("main1", "sub2", False, True))
    with on_host(Host(tmp_path, "ufw")):
        pair, named = find_failures(engine, store, held(MADE), 1)
    assert pair == "main1 does not reach sub2 over TCP"
    (opening,) = openings_of_session(MADE, "agent1")
    assert named == (
        "ufw on agent1 closes what it needs: see firewall_foreign, or run there:"
        f" ufw allow from {opening.source.partition('/')[0]} to any port 4789 proto udp"
    )


def test_unreachable_pairs_are_named(engine: Any, store: Store, probing: Probing) -> None:
    run_containers(engine, "main1", "sub1")
    probing(
        Reachability("main1", "sub1", True, True),
        Reachability("main1", "sub2", False, True),
        Reachability("sub1", "sub2", False, False),
    )
    assert find_failures(engine, store, held(MADE), 1) == [
        "main1 does not reach sub2 over TCP",
        "sub1 does not reach sub2 over TCP",
        "sub1 does not reach sub2 with frames of 1450 bytes",
    ]


@pytest.mark.usefixtures("probing")
def test_sshds_here_are_waited_for(engine: Any, store: Store, listening: list[tuple[int, int]]) -> None:
    run_containers(engine, "main1", "sub1")
    listening.append((102, 22))
    assert find_failures(engine, store, held(MADE), 5) == []
    assert listening == []


@pytest.mark.usefixtures("probing")
def test_no_sshd_is_waited_for_once_its_container_has_ended(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_containers(engine, "main1", "sub1")
    monkeypatch.setattr(check, "listens", lambda _pid, _port: False)
    monkeypatch.setattr(check, "runs", lambda _pid: False)
    began = time.monotonic()
    assert find_failures(engine, store, held(MADE), 60) == []
    assert time.monotonic() - began < 30


def test_in_the_network_of_an_agent_sshds_answer(engine: Any, store: Store, probing: Probing) -> None:
    run_containers(engine, "main1", "sub1")
    made = plan({"agent1": 2, "agent2": 1}, network_driver="host")
    probed = probing()
    find_failures(engine, store, held(made), 1)
    ports = [*made.host_ports("agent1"), *made.host_ports("agent2")]
    assert [(target.port, target.sshd) for target in probed[0][1]] == [(port, True) for port in ports]


@pytest.mark.usefixtures("probing")
def test_failed_login_is_reported_with_the_ssh_error(
    engine: Any, store: Store, logins: dict[tuple[str, str], str]
) -> None:
    run_containers(engine, "main1", "sub1")
    logins["sub1", "sub2"] = "Host key verification failed."
    assert find_failures(engine, store, held(MADE), 0) == ["ssh from sub1 to sub2 fails: Host key verification failed."]


@pytest.mark.usefixtures("probing")
def test_the_last_container_logs_in_to_the_first(engine: Any, store: Store, logins: dict[tuple[str, str], str]) -> None:
    run_containers(engine, "sub2")
    logins["sub2", "main1"] = "no"
    assert find_failures(engine, store, held(MADE, "agent2"), 0) == ["ssh from sub2 to main1 fails: no"]


def test_single_container_session_only_logs_in_to_itself(
    engine: Any, store: Store, probing: Probing, logins: dict[tuple[str, str], str]
) -> None:
    run_containers(engine, "main1")
    probed = probing()
    logins["main1", "main1"] = "no"
    assert find_failures(engine, store, held(plan({"agent1": 1})), 0) == ["ssh from main1 to main1 fails: no"]
    assert probed == []


@pytest.mark.usefixtures("probing")
def test_failed_login_is_retried(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run_containers(engine, "main1")
    answers = [{"main1": "Connection refused"}, {"main1": "Connection refused"}, {}]
    monkeypatch.setattr(check, "chain_passes", lambda *_login: False)
    monkeypatch.setattr(check, "check_logins", lambda *_login: LoginReport({}, answers.pop(0)))
    assert find_failures(engine, store, held(plan({"agent1": 1})), 5) == []
    assert answers == []


@pytest.mark.usefixtures("probing")
def test_agent_without_containers_passes(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(check, "chain_passes")
    assert find_failures(engine, store, held(MADE, "agent3"), 1) == []


@pytest.mark.usefixtures("probing")
@pytest.mark.parametrize("agents", [{"agent1": 7}, {"agent1": 1, "agent2": 5, "agent3": 4}])
def test_logins_of_all_agents_form_one_ring_in_few_commands(
    agents: dict[str, int], engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_plan = plan(agents)
    taken: list[tuple[str, str]] = []
    commands: list[str] = []

    def passes(_client: FakeDocker, container: str, peers: list[str]) -> bool:
        commands.append(container)
        taken.extend(zip([container.rpartition("-")[2], *peers], peers, strict=False))
        return True

    monkeypatch.setattr(check, "chain_passes", passes)
    for kernel in session_plan.kernels:
        monkeypatch.setitem(PIDS, kernel.hostname, 100)
    run_containers(engine, *(kernel.hostname for kernel in session_plan.kernels))
    for agent in agents:
        assert find_failures(engine, store, held(session_plan, agent), 1) == []
    following = dict(taken)
    assert len(taken) == len(following) == len(session_plan.kernels)
    way = ["main1"]
    while following[way[-1]] != "main1":
        way.append(following[way[-1]])
    assert sorted(way) == sorted(kernel.hostname for kernel in session_plan.kernels)
    assert len(commands) == sum(-(-count // check.CHAIN) for count in agents.values())


@pytest.mark.usefixtures("probing")
def test_session_that_passes_is_committed(engine: Any, store: Store) -> None:
    run_containers(engine, "main1", "sub1")
    store.save(held(MADE, expires_at=9e12))
    running = {"status": "running", "image_digest": "sha256:1", "exit_code": None}
    assert check_and_commit(engine, store, SESSION_ID, "nonce-1", 1) == {
        "main1": running,
        "sub1": running,
    }
    noted = store.session(SESSION_ID)
    assert noted is not None
    assert noted.committed


@pytest.mark.usefixtures("probing")
def test_session_that_fails_is_not_committed(engine: Any, store: Store) -> None:
    store.save(held(MADE, expires_at=9e12))
    with pytest.raises(CheckFailedError) as refused:
        check_and_commit(engine, store, SESSION_ID, "nonce-1", 1)
    assert str(refused.value) == "main1 is missing on agent1; sub1 is missing on agent1"
    noted = store.session(SESSION_ID)
    assert noted is not None
    assert not noted.committed


@pytest.mark.usefixtures("probing")
def test_a_claim_that_expired_during_the_check_is_not_committed(engine: Any, store: Store) -> None:
    """Another process may be removing its containers."""
    run_containers(engine, "main1", "sub1")
    store.save(held(MADE, expires_at=1.0))
    with pytest.raises(ClaimLostError, match="the claim of session train-llm expired while it was checked"):
        check_and_commit(engine, store, SESSION_ID, "nonce-1", 1)
    noted = store.session(SESSION_ID)
    assert noted is not None
    assert not noted.committed


@pytest.mark.usefixtures("probing")
def test_a_run_that_lost_its_claim_commits_nothing(engine: Any, store: Store) -> None:
    run_containers(engine, "main1", "sub1")
    store.save(held(MADE, nonce="nonce-2", expires_at=9e12))
    with pytest.raises(ClaimLostError):
        check_and_commit(engine, store, SESSION_ID, "nonce-1", 1)
