"""Claiming an agent's part of a session, against what is there now."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._agent import claim as claiming
from ansible_collections.backendai.cluster.plugins.module_utils._agent.claim import (
    Claim,
    Claimed,
    ClaimRefused,
    claim,
    pick_cpus,
)
from ansible_collections.backendai.cluster.plugins.module_utils._agent.survey import Settings
from ansible_collections.backendai.cluster.plugins.module_utils._core.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._core.ssh import PublicKeys
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from tests.unit.builders import GIB, SESSION_ID, agent_data, held, plan

MADE = plan({"agent1": 2, "agent2": 2}, resources={"cpu": 2, "mem": GIB})
SETTINGS = Settings("default", True, (), {}, 1, 0, "")
KEYS = {name: PublicKeys(f"USER-{name}", f"HOST-{name}") for name in ("main1", "sub1")}
CHANGES = [Change("claim train-llm on agent1", None, "2 containers")]
Facts = Callable[..., None]


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> Facts:
    """Return what sets the facts of the agent; they are those of an empty one until then."""

    def let_be(**changes: Any) -> None:
        monkeypatch.setattr(claiming, "survey", lambda *_reading: agent_data("agent1", **changes))

    let_be()
    monkeypatch.setattr(claiming, "ensure_keys", lambda folder: KEYS[folder.parent.name])
    return let_be


def claimed(engine: Any, store: Store, nonce: str = "nonce-1", *, dry: bool = False) -> Claimed:
    wanted = Claim(MADE, {"name": "train-llm"}, "agent1", nonce, 600)
    return claim(engine, store, SETTINGS, wanted, dry=dry)


def refusal(engine: Any, store: Store) -> str:
    with pytest.raises(ClaimRefused) as refused:
        claimed(engine, store)
    assert store.session(SESSION_ID) is None
    return str(refused.value)


@pytest.mark.usefixtures("facts")
def test_a_claim_is_noted_with_cores_of_its_own_and_a_time_limit(engine: Any, store: Store) -> None:
    assert claimed(engine, store) == Claimed(CHANGES, KEYS)
    noted = store.session(SESSION_ID)
    assert noted is not None
    assert (noted.plan, noted.request, noted.agent, noted.nonce) == (MADE, {"name": "train-llm"}, "agent1", "nonce-1")
    assert noted.cpus == {"main1": [0, 1], "sub1": [2, 3]}
    assert noted.expires_at is not None
    assert 0 < noted.expires_at - time.time() <= 600


@pytest.mark.usefixtures("facts")
def test_check_mode_claims_nothing_and_makes_no_key(engine: Any, store: Store) -> None:
    made = claimed(engine, store, dry=True)
    assert made.changes == CHANGES
    assert set(made.keys.values()) == {PublicKeys("(made by the agent)", "(made by the agent)")}
    assert store.sessions() == []


@pytest.mark.usefixtures("facts")
def test_a_later_run_takes_a_claim_over_with_its_cores(engine: Any, store: Store) -> None:
    store.save(
        held(MADE, nonce="nonce-0", expires_at=time.time() + 60, cpus={"main1": [6, 7], "sub1": [4, 5]}, keys={})
    )
    assert claimed(engine, store) == Claimed([], KEYS)
    noted = store.session(SESSION_ID)
    assert noted is not None
    assert (noted.nonce, noted.cpus, noted.keys) == ("nonce-1", {"main1": [6, 7], "sub1": [4, 5]}, KEYS)
    assert not noted.expired(time.time())


@pytest.mark.usefixtures("facts")
def test_a_claim_whose_time_is_over_is_removed_and_made_anew(engine: Any, store: Store) -> None:
    store.save(held(MADE, nonce="nonce-0", expires_at=1.0, cpus={"main1": [6, 7], "sub1": [4, 5]}))
    (store.folder(SESSION_ID) / "remains").touch()
    assert claimed(engine, store) == Claimed(CHANGES, KEYS)
    noted = store.session(SESSION_ID)
    assert noted is not None
    assert noted.cpus == {"main1": [0, 1], "sub1": [2, 3]}
    assert not (store.folder(SESSION_ID) / "remains").exists()


def test_a_claim_whose_time_is_over_is_refused_where_its_room_was_given_away(
    engine: Any, store: Store, facts: Facts
) -> None:
    store.save(held(MADE, nonce="nonce-0", expires_at=1.0))
    facts(taken={"cpu": 5})
    assert refusal(engine, store) == "agent1 no longer has room for 2 containers of cpu 2, mem 1g"


@pytest.mark.usefixtures("facts")
def test_a_committed_session_stays_as_it_is(engine: Any, store: Store) -> None:
    before = held(MADE, nonce="nonce-0")
    store.save(before)
    assert claimed(engine, store) == Claimed([], before.keys)
    assert store.session(SESSION_ID) == before


@pytest.mark.parametrize(
    ("seen", "sentence"),
    [
        ({"taken": {"cpu": 5}}, "agent1 no longer has room for 2 containers of cpu 2, mem 1g"),
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
    ],
    ids=["room", "mounts", "identifier", "subnet"],
)
def test_what_was_taken_since_the_facts_were_read_is_refused(
    engine: Any, store: Store, facts: Facts, seen: dict[str, Any], sentence: str
) -> None:
    facts(**seen)
    assert refusal(engine, store) == sentence


@pytest.mark.usefixtures("facts")
def test_a_name_that_another_run_took_is_refused(engine: Any, store: Store) -> None:
    other = plan({"agent1": 1}).to_dict() | {"id": "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"}
    store.save(held(type(MADE).from_dict(other), nonce="theirs", expires_at=time.time() + 60))
    assert refusal(engine, store) == "session_name: 'train-llm' was taken on agent1 by another run"


@pytest.mark.usefixtures("facts")
def test_a_claim_that_was_given_up_is_removed_by_the_next(engine: Any, store: Store) -> None:
    other = plan({"agent1": 1}).to_dict() | {"id": "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"}
    store.save(held(type(MADE).from_dict(other), nonce="theirs", expires_at=1.0))
    claimed(engine, store)
    assert [one.plan.id for one in store.sessions()] == [SESSION_ID]


@pytest.mark.usefixtures("facts")
def test_check_mode_leaves_even_what_was_given_up(engine: Any, store: Store) -> None:
    other = plan({"agent1": 1}, name="other").to_dict() | {"id": "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"}
    store.save(held(type(MADE).from_dict(other), expires_at=1.0))
    claimed(engine, store, dry=True)
    assert [one.plan.name for one in store.sessions()] == ["other"]


@pytest.mark.usefixtures("facts")
def test_cores_of_living_sessions_are_avoided(engine: Any, store: Store) -> None:
    other = plan({"agent1": 1}, name="other").to_dict() | {"id": "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"}
    store.save(held(type(MADE).from_dict(other), cpus={"main1": [0, 2]}))
    claimed(engine, store)
    noted = store.session(SESSION_ID)
    assert noted is not None
    assert noted.cpus == {"main1": [1, 3], "sub1": [4, 5]}


@given(
    online=st.lists(st.integers(0, 63), min_size=1, max_size=8, unique=True),
    load=st.dictionaries(st.integers(0, 63), st.integers(0, 3)),
    count=st.integers(1, 8),
    containers=st.integers(1, 6),
)
def test_a_container_gets_distinct_cores_and_never_a_busier_one_than_another_that_is_free(
    online: list[int], load: dict[int, int], count: int, containers: int
) -> None:
    count = min(count, len(online))
    busy = {cpu: load.get(cpu, 0) for cpu in online}
    chosen = pick_cpus(online, load, count, [f"sub{number}" for number in range(containers)])
    assert len(chosen) == containers
    for cpus in chosen.values():
        assert len(set(cpus)) == count
        assert set(cpus) <= set(online)
        assert cpus == sorted(cpus)
        assert max(busy[cpu] for cpu in cpus) <= min((busy[cpu] for cpu in set(online) - set(cpus)), default=99)
        for cpu in cpus:
            busy[cpu] += 1
