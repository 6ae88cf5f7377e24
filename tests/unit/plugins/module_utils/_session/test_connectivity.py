"""Connectivity between the containers of a session."""

from __future__ import annotations

from typing import Any

import pytest
from docker.errors import APIError

from ansible_collections.backendai.cluster.plugins.module_utils._network.reachability import (
    PeerTarget,
    ProbeSource,
    Reachability,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session import connectivity
from ansible_collections.backendai.cluster.plugins.module_utils._session.connectivity import Running, check_pairs
from ansible_collections.backendai.cluster.plugins.module_utils._session.ssh_check import LoginReport
from tests.unit.builders import held, plan

ENGINE: Any = None
MADE = plan({"agent1": 2, "agent2": 1})
ADDRESSES = {kernel.hostname: [kernel.address or ""] for kernel in MADE.kernels}
WELL = [
    Reachability(source, target, True, True)
    for source in ("main1", "sub1")
    for target in ("main1", "sub1", "sub2")
    if source != target
]


class World:
    """The results of probes and logins; ``probed`` and ``asked`` record the calls."""

    def __init__(self) -> None:
        self.met = WELL
        self.said = LoginReport(ADDRESSES, {})
        self.probed: list[Any] = []
        self.asked: dict[str, list[str]] = {}

    def check_reachability(self, *arguments: Any) -> list[Reachability]:
        self.probed.append(arguments)
        return [result for result in self.met if result.source in {source.hostname for source in arguments[0]}]

    def check_logins(self, _client: Any, container: str, peers: list[str], seconds: int) -> LoginReport:
        assert 0 < seconds <= connectivity.LOGINS_SECONDS
        self.asked[container] = peers
        return self.said


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Return the fake network between the containers."""
    world = World()
    for name in ("check_reachability", "check_logins"):
        monkeypatch.setattr(connectivity, name, getattr(world, name))
    return world


def pair(source: str, target: str, **changes: Any) -> dict[str, Any]:
    """Return a reachable pair with changes."""
    to_itself = {"tcp": None, "frame": None} if source == target else {}
    well = {"name": True, "tcp": True, "frame": True, "ssh": True, "ssh_error": None}
    return {"from": source, "to": target, **well, **to_itself, **changes}


def test_each_local_container_is_checked_towards_all_containers(world: World) -> None:
    assert check_pairs(ENGINE, held(MADE), {"main1": Running("id-main1", 101), "sub1": Running("id-sub1", 102)}, 3) == [
        pair(source, target) for source in ("main1", "sub1") for target in ("main1", "sub1", "sub2")
    ]
    targets = [PeerTarget(kernel.hostname, kernel.address or "") for kernel in MADE.kernels]
    assert world.probed == [([ProbeSource("main1", 101), ProbeSource("sub1", 102)], targets, 1450, 3)]
    everybody = ["main1", "sub1", "sub2"]
    assert world.asked == {"id-main1": everybody, "id-sub1": everybody}


def test_no_login_is_tried_without_tcp(world: World) -> None:
    world.met = [Reachability("main1", "sub1", False, True), Reachability("main1", "sub2", False, False)]
    others = [
        entry
        for entry in check_pairs(ENGINE, held(MADE), {"main1": Running("id-main1", 101)}, 3)
        if entry["to"] != "main1"
    ]
    assert others == [
        pair("main1", "sub1", tcp=False, ssh=None),
        pair("main1", "sub2", tcp=False, frame=False, ssh=None),
    ]
    assert world.asked == {"id-main1": ["main1"]}


def test_failed_login_is_reported_with_its_output(world: World) -> None:
    world.said = LoginReport(ADDRESSES, {"sub2": "Permission denied"})
    (failed,) = (
        entry for entry in check_pairs(ENGINE, held(MADE), {"main1": Running("id-main1", 101)}, 3) if not entry["ssh"]
    )
    assert failed == pair("main1", "sub2", ssh=False, ssh_error="Permission denied")


@pytest.mark.parametrize(
    ("addresses", "leads"),
    [
        ([], False),
        (["10.0.0.9", "ADDRESS"], False),
        (["ADDRESS", "10.0.0.9"], True),
        (["fd00::9", "ADDRESS"], True),
        (["fd00::9"], False),
    ],
    ids=["unknown", "another first", "the right one first", "IPv6 does not count", "IPv6 alone"],
)
def test_name_resolves_to_its_first_address(world: World, addresses: list[str], leads: bool) -> None:
    listed = [str(MADE.kernels[2].address) if address == "ADDRESS" else address for address in addresses]
    world.said = LoginReport({**ADDRESSES, "sub2": listed}, {})
    resolved = {
        entry["to"]: entry["name"] for entry in check_pairs(ENGINE, held(MADE), {"main1": Running("id-main1", 101)}, 3)
    }
    assert resolved == {"main1": True, "sub1": True, "sub2": leads}


def test_single_container_session_checks_name_and_login_to_itself(world: World) -> None:
    world.said = LoginReport({"main1": ["127.0.0.1"]}, {})
    assert check_pairs(ENGINE, held(plan({"agent1": 1})), {"main1": Running("id-main1", 101)}, 3) == [
        pair("main1", "main1")
    ]
    assert world.probed == []


def test_stopped_containers_are_not_checked(world: World) -> None:
    world.met = []
    assert check_pairs(ENGINE, held(MADE), {}, 3) == []
    assert world.asked == {}


def test_exec_error_fails_names_and_logins(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_asked: Any) -> LoginReport:
        raise APIError("409", explanation="container\nis paused")

    monkeypatch.setattr(connectivity, "check_logins", refuse)
    assert world.met == WELL
    assert check_pairs(ENGINE, held(MADE), {"sub1": Running("id-sub1", 102)}, 3)[0] == pair(
        "sub1", "main1", name=False, ssh=False, ssh_error="container is paused"
    )


def test_logins_after_the_time_limit_are_not_tried(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connectivity, "LOGINS_SECONDS", 0)
    reports = check_pairs(ENGINE, held(MADE), {"main1": Running("id-main1", 101)}, 3)
    assert world.asked == {}
    assert {report["ssh_error"] for report in reports} == {"not tried: the logins of other containers took 0 seconds"}
