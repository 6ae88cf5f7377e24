"""Tests for the facts of an agent."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import Device
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import ClusterError
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.mounts import MISSING
from ansible_collections.backendai.cluster.plugins.module_utils._model.network import Underlay
from ansible_collections.backendai.cluster.plugins.module_utils._model.plain_data import to_plain
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.reconcile import reconcile
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Placement
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import ClusterState
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import decide
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.session_network import PlanningError
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.session_plan import make_plan
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import session_record, stranger_record
from tests.unit.builders import (
    GIB,
    IMAGE,
    NOW,
    POOLS,
    SESSION_ID,
    USER,
    agent_data,
    agent_facts,
    encrypted_underlay,
    held_session,
    image_data,
    plan,
    spec,
)

OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
DELETED = object()


def test_facts_become_typed_values() -> None:
    session = plan({"agent1": 2})
    facts = agent_facts("agent1", 4, sessions=[held_session(session, "agent1")], networks=["10.0.0.0/8"], vnis=[7])
    assert (facts.online_cpus, facts.online_cpu_count) == ((0, 1, 2, 3), 4)
    assert facts.underlay == Underlay("192.0.2.1", "eth0", 1500)
    assert facts.latest_session == session.created_at
    assert (facts.networks, facts.vnis, facts.unusable_paths) == (("10.0.0.0/8",), (7,), {})


def test_agent_without_sessions_has_latest_session_zero() -> None:
    assert agent_facts("agent1").latest_session == 0.0


def test_free_slots_are_never_negative() -> None:
    facts = agent_facts("agent1", 4, 4 * GIB, allocated={"cpu": 6, "mem": GIB, "cuda.device": 1})
    assert facts.free == {"cpu": 0, "mem": 3 * GIB}


def test_slot_without_capacity_is_not_offered() -> None:
    facts = agent_facts("agent1", capacity={"cpu": 4, "mem": GIB, "cuda.device": 0}, allocated={"cpu": 4})
    assert [slot for slot in ("cpu", "mem", "cuda.device", "tpu") if facts.offers(slot)] == ["cpu", "mem"]


def test_free_slots_depend_only_on_allocated_slots() -> None:
    facts = agent_facts("agent1", 4, 4 * GIB)
    taken = dataclasses.replace(facts, allocated={"cpu": 1})
    assert (facts.free, taken.free) == ({"cpu": 4, "mem": 4 * GIB}, {"cpu": 3, "mem": 4 * GIB})


# ---- conversion to plain data and back


def everything() -> tuple[AgentFacts, SessionPlan]:
    """Return the facts of an agent in which no field is empty, and the plan of its session."""
    request = spec(
        cluster_size=4,
        cluster_mode="multi-node",
        mounts=[{"source": "/data", "target": "/data"}],
        apps=[{"name": "web", "port": 80}],
        env={"TOKEN": "hunter2"},
    )
    agents = [agent_facts(name) for name in ("agent1", "agent2")]
    pools = dataclasses.replace(POOLS, gateways=("192.0.2.9",))
    placement = Placement(("agent1", "agent1", "agent2", "agent2"))
    session = make_plan(request, placement, agents, pools, SESSION_ID, USER, NOW)
    facts = agent_facts(
        "agent1",
        devices=[Device("tpu", "/dev/accel0", 1, free=False)],
        warnings=["nvidia-smi fails"],
        underlay=encrypted_underlay(1),
        udp_ports={53: "another program"},
        tcp_ports=[22, 30000],
        networks=["10.0.0.1/8"],
        vnis=[7],
        images={IMAGE: image_data(), "absent:1": None},
        unusable_images={"odd:1": "its form is not known"},
        unusable_paths={"/data": MISSING},
        sessions=[held_session(session, "agent1", stopped={"sub1": ("exited", 3)})],
    )
    return facts, session


EVERYTHING, MADE = everything()


def test_facts_survive_json() -> None:
    text = json.dumps(EVERYTHING.to_dict())
    assert AgentFacts.from_dict("agent1", json.loads(text)) == EVERYTHING
    assert "hunter2" not in text


def test_agent_name_is_that_of_the_inventory() -> None:
    assert "name" not in EVERYTHING.to_dict()
    claimed = {**EVERYTHING.to_dict(), "name": "agent9"}
    assert AgentFacts.from_dict("agent1", claimed).name == "agent1"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"capacity": {"cpu": "8"}}, "capacity.cpu must be a whole number"),
        ({"online_cpus": 8}, "online_cpus must be a list"),
        ({"sessions": [{}]}, "sessions[0].id is missing"),
        ({"colour": "red"}, "colour is not known"),
        (
            {"underlay": {"address": "here", "interface": "eth0", "mtu": 1500}},
            "underlay is invalid, because its address must be an IP address",
        ),
        (
            {"underlay": {**to_plain(encrypted_underlay(1)), "address": encrypted_underlay(2).address}},
            "underlay is invalid, because its address must be that of its public key",
        ),
        ({"reserved_ports": {"x": [30001]}}, "reserved_ports must be those of sessions"),
        ({"damaged_sessions": ["x"]}, "damaged_sessions must be ids of sessions"),
        ({"addresses": ["192.0.2.1", "192.0.2.0/24"]}, "addresses must be IP addresses"),
        ({"addresses": ["fe80::1%eth0"]}, "addresses must be IP addresses"),
        (
            {"addresses": [f"10.0.{number // 256}.{number % 256}" for number in range(1025)]},
            "addresses must be 1024 at most",
        ),
        ({"networks": ["10.0.0.0/33"]}, "networks must be IP networks"),
        (
            {"sessions": [{**to_plain(held_session(plan(), "agent1")), "name": "../.."}]},
            "sessions[0] is invalid, because its id, its name or a hostname is none that a session has",
        ),
    ],
    ids=[
        "value",
        "kind",
        "missing",
        "unknown",
        "underlay",
        "address of another key",
        "ports",
        "damaged",
        "address",
        "zone",
        "addresses",
        "network",
        "session",
    ],
)
def test_damaged_facts_error_contains_agent_and_field(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ClusterError) as raised:
        AgentFacts.from_dict("agent1", {**agent_data("agent1"), **changes})
    assert str(raised.value) == f"the facts of agent1 are damaged: {problem}"


@pytest.mark.parametrize("field", agent_data("agent1"))
def test_facts_with_a_missing_field_are_damaged(field: str) -> None:
    data = {key: value for key, value in agent_data("agent1").items() if key != field}
    with pytest.raises(ClusterError, match=f"^the facts of agent1 are damaged: {field} is missing$"):
        AgentFacts.from_dict("agent1", data)


def _paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to every value in plain data."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, value in items:
        yield (*path, step)
        yield from _paths(value, (*path, step))


def _read(data: dict[str, Any]) -> AgentFacts | str:
    """Return the facts of an agent, or the error of damaged ones."""
    try:
        return AgentFacts.from_dict("agent1", data)
    except ClusterError as error:
        return str(error)


values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("exited")),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=5), inner, max_size=2)),
    max_leaves=4,
)


@given(st.sampled_from(list(_paths(EVERYTHING.to_dict()))), st.one_of(st.just(DELETED), values))
def test_damaged_facts_are_one_sentence_or_usable(path: tuple[Any, ...], value: Any) -> None:
    data = EVERYTHING.to_dict()
    parent: Any = data
    for step in path[:-1]:
        parent = parent[step]
    if value is DELETED:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    facts = _read(data)
    if isinstance(facts, str):
        assert facts.startswith("the facts of agent1 are damaged: ")
        assert facts.isprintable()
        return
    assert facts.to_dict().keys() == data.keys()
    assert facts.to_dict() == AgentFacts.from_dict("agent1", facts.to_dict()).to_dict()
    state = ClusterState({"agent1": facts}, {}, {MADE.id: MADE})
    for session in state.sessions.values():
        assert session.status in ("CREATING", "DEGRADED", "ERROR", "RUNNING")
        assert session_record(session.plan, "RUNNING", session.containers)["id"] == MADE.id
    for session_id, parts in state.strangers.items():
        assert stranger_record(session_id, parts)["user"] is None
    reconcile([], state.held, (), True, NOW)
    for driver in ("vxlan", "host"):
        request = spec(name="another", cluster_size=12, cluster_mode="multi-node", network_driver=driver)
        with contextlib.suppress(ValidationError, PlanningError):
            decide(request, state, POOLS, OTHER_ID, USER, NOW)
