"""Sessions on the host network: ports are claimed, and only containers are created."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.environment import session_environment
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import PublicKeys
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import PublishedPort
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import LinkState
from ansible_collections.backendai.cluster.plugins.module_utils._session import claim as claiming
from ansible_collections.backendai.cluster.plugins.module_utils._session.apply import ApplyRequest, apply_claimed
from ansible_collections.backendai.cluster.plugins.module_utils._session.claim import (
    ClaimRefusedError,
    ClaimRequest,
    claim,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.contents import RenderedFiles, ssh_ports_file
from ansible_collections.backendai.cluster.plugins.module_utils._session.facts import AgentSettings
from ansible_collections.backendai.cluster.plugins.module_utils._session.links import plan_links
from tests.unit.builders import SESSION_ID, agent_facts, held, plan, public_keys
from tests.unit.fake_docker import FakeDocker, environment_of
from tests.unit.fake_network import FakeNetwork

MADE = plan({"agent1": 2, "agent2": 1}, network_driver="host")
FIRST, SECOND = MADE.host_ports("agent1")
CONTENTS = RenderedFiles(
    hosts="127.0.0.1 localhost\n",
    ssh_config="Host *\n",
    environments={kernel.hostname: session_environment(MADE, kernel) for kernel in MADE.kernels},
    keys=public_keys(MADE),
    user_keys=(),
)


def apply(engine: FakeDocker, store: Store) -> list[str]:
    client: Any = engine
    request = ApplyRequest(MADE, "agent1", "nonce-1", CONTENTS, "backendai-default")
    return [change.subject for change in apply_claimed(client, store, request, check_mode=False)[0]]


def claimed(store: Store, monkeypatch: pytest.MonkeyPatch, **facts: Any) -> list[str]:
    """Claim the session on agent1 with these facts, and return the hostnames of the created keys."""
    client: Any = FakeDocker()
    monkeypatch.setattr(claiming, "collect_facts", lambda *_reading: agent_facts("agent1", **facts))
    monkeypatch.setattr(claiming.machine, "numa_nodes", lambda cpus: dict.fromkeys(cpus, 0))
    monkeypatch.setattr(claiming, "ensure_keys", lambda _folder, _kit: PublicKeys("USER", "HOST"))
    settings = AgentSettings("default", True, (), {}, 1, 0, "", bool(facts.get("allow_host_network")))
    return sorted(claim(client, store, settings, ClaimRequest(MADE, "agent1", "nonce-1", 600), check_mode=False).keys)


def test_slice_has_files_rules_and_containers_but_no_links(
    engine: FakeDocker, store: Store, kernel: FakeNetwork
) -> None:
    store.save(held(MADE, expires_at=9e12))
    files = [subject.rpartition("/")[2] for subject in apply(engine, store)]
    of_each = ["hosts", "passwd", "group", "derived", "hostfile", "sshd_config"]
    of_each += ["config", "known_hosts", "authorized_keys", "ports", "environment"]
    assert files == [
        *of_each * 2,
        "firewall table inet backendai",
        "container backendai-train-llm-main1",
        "container backendai-train-llm-sub1",
    ]
    assert engine.calls[0].startswith("create backendai-train-llm-")
    assert (kernel.links, kernel.plugged, plan_links(MADE, "agent1", LinkState())) == (set(), [], [])
    assert (store.kernel_folder(SESSION_ID, "sub1") / "ports").read_text() == ssh_ports_file(MADE.kernels)
    listens = (store.kernel_folder(SESSION_ID, "sub1") / "sshd_config").read_text().splitlines()[-1]
    assert listens == f"ListenAddress {MADE.kernels[1].address}:{MADE.kernels[1].ssh_port}"
    assert apply(engine, store) == []
    assert kernel.plugged == []


def test_containers_use_only_the_host_network_with_their_hostnames(engine: FakeDocker, store: Store) -> None:
    store.save(held(MADE, expires_at=9e12))
    apply(engine, store)
    assert sorted(call["Hostname"] for call in engine.asked) == ["main1", "sub1"]
    for call in engine.asked:
        assert (call["NetworkingConfig"], call.get("MacAddress")) == ({"EndpointsConfig": {}}, None)
        assert call["HostConfig"]["NetworkMode"] == "host"
        assert environment_of(call)["NCCL_SOCKET_IFNAME"] == "eth0"
    assert [call for call in engine.calls if call.startswith("connect")] == []


def test_no_ports_are_published_on_the_host_network(engine: FakeDocker, store: Store) -> None:
    ways = (PublishedPort("ssh", "tcp", FIRST, "192.0.2.1", FIRST),)
    published_plan = dataclasses.replace(MADE, published=ways, gateways=("198.51.100.7",))
    store.save(held(published_plan, expires_at=9e12))
    client: Any = engine
    apply_claimed(
        client,
        store,
        ApplyRequest(published_plan, "agent1", "nonce-1", CONTENTS, "backendai-default"),
        check_mode=False,
    )
    assert [(call["ExposedPorts"], call["HostConfig"]["PortBindings"]) for call in engine.asked] == [({}, {})] * 2


def test_firewall_accepts_the_other_agents(engine: FakeDocker, store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE, expires_at=9e12))
    apply(engine, store)
    assert f"elements = {{ {', '.join(map(str, sorted((FIRST, SECOND))))} }}" in kernel.table
    assert f"192.0.2.2 . {FIRST}" in kernel.table


def test_free_ports_are_claimed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert claimed(store, monkeypatch, allow_host_network=True, tcp_ports=[22, 8080]) == ["main1", "sub1"]


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (
            {"allow_host_network": True, "tcp_ports": [SECOND]},
            f"the port {SECOND} was taken on agent1 by another run",
        ),
        ({}, "agent_allow_host_network: agent1 no longer allows containers on its own network"),
    ],
    ids=["port", "permission"],
)
def test_plan_that_no_longer_fits_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ClaimRefusedError) as refused:
        claimed(store, monkeypatch, **facts)
    assert str(refused.value) == sentence
    assert store.session(SESSION_ID) is None
