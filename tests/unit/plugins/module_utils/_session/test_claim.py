"""Claiming an agent's part of a session, against what is there now."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import PinnedResources
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import PublicKeys
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import PublishedPort
from ansible_collections.backendai.cluster.plugins.module_utils._session import claim as claiming
from ansible_collections.backendai.cluster.plugins.module_utils._session.claim import (
    ClaimRefusedError,
    ClaimRequest,
    ClaimResult,
    ContainerNameConflictError,
    claim,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.facts import AgentSettings, FactsQuery
from tests.unit.builders import GIB, SESSION_ID, agent_facts, held, plan

OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
MADE = plan({"agent1": 2, "agent2": 2}, resources={"cpu": 2, "mem": GIB})
SETTINGS = AgentSettings("default", True, (), {}, 1, 0, "", False)
KEYS = {name: PublicKeys(f"USER-{name}", f"HOST-{name}") for name in ("main1", "sub1")}
CHANGES = [Change("claim train-llm on agent1", None, "2 containers")]
Facts = Callable[..., None]


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> Facts:
    """Return what sets the facts of the agent; they are those of an empty one until then."""

    def let_be(**changes: Any) -> None:
        monkeypatch.setattr(claiming, "collect_facts", lambda *_reading: agent_facts("agent1", **changes))

    let_be()
    monkeypatch.setattr(claiming.machine, "numa_nodes", lambda cpus: dict.fromkeys(cpus, 0))
    monkeypatch.setattr(claiming, "ensure_keys", lambda folder: KEYS[folder.parent.name])
    return let_be


def labels_of(session_id: str) -> dict[str, str]:
    return {labels.OWNER: labels.OWNER_VALUE, labels.SESSION_ID: session_id, labels.HOSTNAME: "main1"}


def claimed(
    engine: Any, store: Store, of: SessionPlan = MADE, *, clear: Sequence[str] = (), dry: bool = False
) -> ClaimResult:
    wanted = ClaimRequest(of, {"name": "train-llm"}, "agent1", "nonce-1", 600, clear)
    return claim(engine, store, SETTINGS, wanted, dry=dry)


def pinned(store: Store) -> dict[str, PinnedResources]:
    noted = store.session(SESSION_ID)
    assert noted is not None
    return noted.pinned


def another(**changes: Any) -> SessionPlan:
    """Return the plan of another session."""
    return dataclasses.replace(plan({"agent1": 1}, name="other"), id=OTHER_ID, **changes)


def asking(**slots: int) -> SessionPlan:
    """Return the plan with these slots asked of sub1."""
    main, sub, *others = MADE.kernels
    wider = dataclasses.replace(sub, resources={**sub.resources, **slots})
    return dataclasses.replace(MADE, kernels=(main, wider, *others))


def device(name: str, numa: int | None = None, *, free: bool = True) -> dict[str, Any]:
    return {"slot": "tpu", "id": name, "numa": numa, "free": free}


def refusal(engine: Any, store: Store, of: SessionPlan = MADE) -> str:
    with pytest.raises(ClaimRefusedError) as refused:
        claimed(engine, store, of)
    assert store.session(SESSION_ID) is None
    return str(refused.value)


@pytest.mark.usefixtures("facts")
def test_a_claim_is_noted_with_cores_of_its_own_and_a_time_limit(engine: Any, store: Store) -> None:
    assert claimed(engine, store) == ClaimResult(CHANGES, KEYS)
    noted = store.session(SESSION_ID)
    assert noted is not None
    assert (noted.plan, noted.request, noted.agent, noted.nonce) == (MADE, {"name": "train-llm"}, "agent1", "nonce-1")
    assert noted.pinned == {"main1": PinnedResources([0, 1]), "sub1": PinnedResources([2, 3])}
    assert noted.expires_at is not None
    assert 0 < noted.expires_at - time.time() <= 600


@pytest.mark.usefixtures("facts")
def test_check_mode_claims_nothing_and_makes_no_key(engine: Any, store: Store) -> None:
    made = claimed(engine, store, dry=True)
    assert made.changes == CHANGES
    assert set(made.keys.values()) == {PublicKeys("(created by the agent)", "(created by the agent)")}
    assert store.sessions() == []


@pytest.mark.usefixtures("facts")
def test_a_later_run_takes_a_claim_over_with_its_cores_and_devices(engine: Any, store: Store) -> None:
    before = {"main1": PinnedResources([6, 7], {"tpu": ["a"]}), "sub1": PinnedResources([4, 5])}
    store.save(held(MADE, nonce="nonce-0", expires_at=time.time() + 60, pinned=before, keys={}))
    assert claimed(engine, store) == ClaimResult([], KEYS)
    noted = store.session(SESSION_ID)
    assert noted is not None
    assert (noted.nonce, noted.pinned, noted.keys) == ("nonce-1", before, KEYS)
    assert not noted.expired(time.time())


@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize("dry", [False, True], ids=["run", "check mode"])
def test_a_claim_for_another_plan_of_the_session_is_made_anew(engine: Any, store: Store, dry: bool) -> None:
    before = dataclasses.replace(MADE, kernels=MADE.kernels[:1])
    store.save(held(before, nonce="nonce-0", expires_at=time.time() + 60, pinned={"main1": PinnedResources([6, 7])}))
    assert claimed(engine, store, dry=dry).changes == CHANGES
    given = (
        {"main1": PinnedResources([6, 7])}
        if dry
        else {"main1": PinnedResources([0, 1]), "sub1": PinnedResources([2, 3])}
    )
    assert pinned(store) == given


@pytest.mark.usefixtures("facts")
def test_a_claim_whose_time_is_over_is_removed_and_made_anew(engine: Any, store: Store) -> None:
    store.save(
        held(
            MADE,
            nonce="nonce-0",
            expires_at=1.0,
            pinned={"main1": PinnedResources([6, 7]), "sub1": PinnedResources([4, 5])},
        )
    )
    (store.folder(SESSION_ID) / "remains").touch()
    assert claimed(engine, store) == ClaimResult(CHANGES, KEYS)
    assert pinned(store) == {"main1": PinnedResources([0, 1]), "sub1": PinnedResources([2, 3])}
    assert not (store.folder(SESSION_ID) / "remains").exists()


def test_a_claim_whose_time_is_over_is_refused_where_its_room_was_given_away(
    engine: Any, store: Store, facts: Facts
) -> None:
    store.save(held(MADE, nonce="nonce-0", expires_at=1.0))
    facts(allocated={"cpu": 5})
    assert refusal(engine, store) == "agent1 no longer has room for 2 containers of cpu 2, mem 1g"


@pytest.mark.usefixtures("facts")
def test_a_committed_session_stays_as_it_is(engine: Any, store: Store) -> None:
    before = held(MADE, nonce="nonce-0")
    store.save(before)
    assert claimed(engine, store) == ClaimResult([], before.keys)
    assert store.session(SESSION_ID) == before


@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize("dry", [False, True])
def test_what_a_killed_run_has_committed_belongs_to_the_run_that_finishes_it(
    engine: Any, store: Store, dry: bool
) -> None:
    before = held(MADE, nonce="nonce-0")
    store.save(before)
    wanted = ClaimRequest(MADE, {"name": "train-llm"}, "agent1", "nonce-1", 600, never_completed=True)
    assert claim(engine, store, SETTINGS, wanted, dry=dry) == ClaimResult([], before.keys)
    assert store.session(SESSION_ID) == dataclasses.replace(before, nonce="nonce-0" if dry else "nonce-1")


@pytest.mark.parametrize(
    ("seen", "sentence"),
    [
        ({"allocated": {"cpu": 5}}, "agent1 no longer has room for 2 containers of cpu 2, mem 1g"),
        (
            {"missing_paths": ["/mnt/a", "/mnt/b"]},
            "session_mounts: /mnt/a, /mnt/b is not a folder on agent1",
        ),
        (
            {"vnis": [MADE.network.vni if MADE.network else 0]},
            f"the network identifier {MADE.network and MADE.network.vni} was taken on agent1 by another run",
        ),
        (
            {"networks": ["fd00::/8", "0.0.0.0/0", "10.128.0.1/9"]},
            f"the subnet {MADE.network and MADE.network.subnet} was taken on agent1 by another run",
        ),
        ({"underlay": None}, "agent1 no longer has the underlay address 192.0.2.1 on eth0"),
        (
            {"underlay": {"address": "fd62:6169::1", "interface": "baiwg0", "mtu": 1440, "public_key": "KEY"}},
            "agent1 no longer has the underlay address 192.0.2.1 on eth0",
        ),
    ],
    ids=["room", "mounts", "identifier", "subnet", "underlay", "encryption"],
)
def test_what_was_taken_since_the_facts_were_read_is_refused(
    engine: Any, store: Store, facts: Facts, seen: dict[str, Any], sentence: str
) -> None:
    facts(**seen)
    assert refusal(engine, store) == sentence


WAYS = tuple(PublishedPort("app", "tcp", port, "192.0.2.1", port) for port in (30005, 30007))
OPEN = dataclasses.replace(MADE, published=WAYS)


@pytest.mark.parametrize(("taken", "first"), [([30007], 30007), ([22, 30007, 30005], 30005)])
def test_a_port_to_publish_that_was_taken_since_is_refused(
    engine: Any, store: Store, facts: Facts, taken: list[int], first: int
) -> None:
    facts(tcp_ports=taken)
    assert refusal(engine, store, OPEN) == f"the port {first} was taken on agent1 by another run"


def test_a_port_to_publish_is_taken_in_a_session_of_one_too(engine: Any, store: Store, facts: Facts) -> None:
    facts(tcp_ports=[30005])
    alone = dataclasses.replace(plan({"agent1": 1}), published=WAYS)
    assert refusal(engine, store, alone) == "the port 30005 was taken on agent1 by another run"


def test_ports_that_another_agent_publishes_are_no_matter(engine: Any, store: Store, facts: Facts) -> None:
    facts(tcp_ports=[30005, 30007])
    moved = tuple(dataclasses.replace(one, agent="agent2") for one in MADE.kernels[:1])
    away = dataclasses.replace(OPEN, kernels=(*moved, *MADE.kernels[1:]))
    assert claimed(engine, store, away).changes == [Change("claim train-llm on agent1", None, "1 containers")]


def test_ports_that_are_free_are_claimed(engine: Any, store: Store, facts: Facts) -> None:
    facts(tcp_ports=[22, 30006])
    assert claimed(engine, store, OPEN).changes == CHANGES


def test_infiniband_that_is_gone_since_the_facts_were_read_is_refused(engine: Any, store: Store, facts: Facts) -> None:
    asked = dataclasses.replace(MADE, infiniband=True)
    facts(infiniband=False)
    assert refusal(engine, store, asked) == "session_infiniband: agent1 no longer has /dev/infiniband"
    facts(infiniband=True)
    assert claimed(engine, store, asked).changes == CHANGES


def test_containers_that_differ_are_told_apart_where_there_is_no_room(engine: Any, store: Store, facts: Facts) -> None:
    facts(capacity={"cpu": 8, "mem": 16 * GIB, "tpu": 1}, allocated={"tpu": 1}, devices=[device("a", free=False)])
    assert refusal(engine, store, asking(tpu=1)) == (
        "agent1 no longer has room for 1 container of cpu 2, mem 1g and 1 container of cpu 2, mem 1g, tpu 1"
    )


@pytest.mark.usefixtures("facts")
def test_a_name_that_another_run_took_is_refused(engine: Any, store: Store) -> None:
    store.save(held(another(name="train-llm"), nonce="theirs", expires_at=time.time() + 60))
    assert refusal(engine, store) == "session_name: 'train-llm' was taken on agent1 by another run"


@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize("labelled", [{}, {**labels_of("lost")}], ids=["of others", "of a session that was lost"])
def test_the_name_of_a_container_that_is_not_of_this_session_is_refused(
    engine: Any, store: Store, labelled: dict[str, str]
) -> None:
    name = MADE.kernels[0].container
    engine.made = [{"Id": "a", "Names": [f"/{name}"], "Labels": labelled, "State": "exited"}]
    with pytest.raises(ContainerNameConflictError) as taken:
        claimed(engine, store)
    assert str(taken.value) == f"container {name} already exists on agent1 and does not belong to this session"
    assert (store.session(SESSION_ID), engine.calls) == (None, [])


@pytest.mark.usefixtures("facts")
def test_containers_of_this_session_whose_folder_was_lost_are_removed_and_do_not_stand_in_the_way(
    engine: Any, store: Store
) -> None:
    name = MADE.kernels[0].container
    engine.made = [{"Id": "a", "Names": [f"/{name}"], "Labels": labels_of(SESSION_ID), "State": "exited"}]
    assert claimed(engine, store) == ClaimResult(CHANGES, KEYS)
    assert engine.calls == ["remove a"]


@pytest.mark.usefixtures("facts")
def test_a_claim_that_was_given_up_is_removed_by_the_next(engine: Any, store: Store) -> None:
    store.save(held(another(), nonce="theirs", expires_at=1.0))
    claimed(engine, store)
    assert [one.plan.id for one in store.sessions()] == [SESSION_ID]


@pytest.mark.usefixtures("facts")
def test_check_mode_leaves_even_what_was_given_up(engine: Any, store: Store) -> None:
    store.save(held(another(), expires_at=1.0))
    claimed(engine, store, dry=True)
    assert [one.plan.name for one in store.sessions()] == ["other"]


@pytest.mark.usefixtures("facts")
def test_what_ended_while_the_agent_was_away_is_removed_first(engine: Any, store: Store) -> None:
    store.save(held(another(name="train-llm"), pinned={"main1": PinnedResources([0, 1])}))
    engine.made = [{"Id": "a", "Names": ["/old"], "Labels": labels_of(OTHER_ID), "State": "running"}]
    changes = [Change("container old", "running", None), Change("session train-llm", "held", None), *CHANGES]
    assert claimed(engine, store, clear=[OTHER_ID]) == ClaimResult(changes, KEYS)
    assert [one.plan.id for one in store.sessions()] == [SESSION_ID]
    assert pinned(store) == {"main1": PinnedResources([0, 1]), "sub1": PinnedResources([2, 3])}


@pytest.mark.usefixtures("facts")
def test_what_ended_is_removed_although_the_session_needs_no_claim(engine: Any, store: Store) -> None:
    for one in (held(MADE), held(another())):
        store.save(one)
    assert claimed(engine, store, clear=[OTHER_ID]).changes == [Change("session other", "held", None)]
    assert [one.plan.id for one in store.sessions()] == [SESSION_ID]


@pytest.mark.usefixtures("facts")
def test_check_mode_tells_what_would_be_removed_and_leaves_it(engine: Any, store: Store) -> None:
    store.save(held(another(name="train-llm"), pinned={"main1": PinnedResources([0, 1])}))
    assert claimed(engine, store, clear=[OTHER_ID], dry=True).changes == [
        Change("session train-llm", "held", None),
        *CHANGES,
    ]
    assert [one.plan.id for one in store.sessions()] == [OTHER_ID]


@pytest.mark.usefixtures("facts")
def test_what_is_no_id_removes_nothing(engine: Any, store: Store) -> None:
    store.save(held(another()))
    with pytest.raises(ValueError, match=r"^session_id: '' is not the id of a session$"):
        claimed(engine, store, clear=[""])
    assert [one.plan.id for one in store.sessions()] == [OTHER_ID]


def test_what_is_to_be_removed_counts_as_gone_in_the_facts(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claiming, "ensure_keys", lambda folder: KEYS[folder.parent.name])
    asked: list[FactsQuery] = []

    def survey(*reading: Any) -> AgentFacts:
        asked.append(reading[3])
        return agent_facts("agent1")

    monkeypatch.setattr(claiming, "collect_facts", survey)
    claimed(engine, store, clear=[OTHER_ID])
    assert asked == [FactsQuery(paths=[], excluded=[OTHER_ID, SESSION_ID])]


@pytest.mark.usefixtures("facts")
def test_cores_of_living_sessions_are_avoided(engine: Any, store: Store) -> None:
    store.save(held(another(), pinned={"main1": PinnedResources([0, 2])}))
    claimed(engine, store)
    assert pinned(store) == {"main1": PinnedResources([1, 3]), "sub1": PinnedResources([4, 5])}


def test_cores_and_devices_are_of_one_node(
    engine: Any, store: Store, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claiming.machine, "numa_nodes", lambda cpus: {cpu: cpu // 4 for cpu in cpus})
    facts(capacity={"cpu": 8, "mem": 16 * GIB, "tpu": 3}, devices=[device("a", 0, free=False), device("b", 1)])
    claimed(engine, store, asking(tpu=1))
    assert pinned(store) == {"main1": PinnedResources([0, 1]), "sub1": PinnedResources([4, 5], {"tpu": ["b"]})}


def test_a_core_is_shared_by_no_more_containers_than_the_overcommit_says(
    engine: Any, store: Store, facts: Facts
) -> None:
    facts(online_cpus=[0, 1, 2], capacity={"cpu": 6, "mem": 16 * GIB})
    store.save(held(another(), pinned={"main1": PinnedResources([0]), "sub1": PinnedResources([0])}))
    wanted = ClaimRequest(MADE, {}, "agent1", "nonce-1", 600)
    claim(engine, store, dataclasses.replace(SETTINGS, cpu_overcommit=2), wanted, dry=False)
    assert pinned(store) == {"main1": PinnedResources([1, 2]), "sub1": PinnedResources([1, 2])}
