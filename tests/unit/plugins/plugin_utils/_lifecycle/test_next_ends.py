"""When the next session ends that others wait for: only where each session before them has a limit."""

from __future__ import annotations

import dataclasses
from typing import Any

from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.time_limits import next_ends
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import ClusterState
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from tests.unit.builders import NOW, agent_facts, held_session, plan, readings, requested, spec

HOUR = 3600


def running(number: int, lifetime: int, began: float = NOW, **changes: Any) -> QueueEntry:
    """Return a session that runs on agent1."""
    made = plan({"agent1": 1}, name=f"runs-{number}", max_lifetime=lifetime)
    entry = requested(number)
    made = dataclasses.replace(made, id=entry.id, created_at=began)
    return dataclasses.replace(entry, state="RUNNING", plan=made, **changes)


def waiting(number: int, lifetime: int = 0, **changes: Any) -> QueueEntry:
    return requested(number, spec(name=f"waits-{number}", max_lifetime=lifetime), **changes)


def ends(*entries: QueueEntry, cluster: ClusterState | None = None) -> dict[int, float]:
    """Return the next end for each session that waits, by its number; they wait in the order of their numbers."""
    places = {entry.id: number for number, entry in enumerate(entries) if entry.state == "PENDING"}
    found = next_ends(entries, cluster or readings("agent1"), places, NOW)
    return {int(name[:8], 16): moment - NOW for name, moment in found.items()}


def test_it_is_the_earliest_limit_of_those_that_run() -> None:
    assert ends(running(1, 3 * HOUR), running(2, HOUR), waiting(3)) == {3: HOUR}


def test_what_agents_have_counted_decides() -> None:
    entry = running(1, HOUR)
    assert entry.plan is not None
    facts = agent_facts("agent1", sessions=[held_session(entry.plan, "agent1", lived=600)])
    assert ends(entry, waiting(3), cluster=readings(agent1=facts, recorded=[entry.plan])) == {3: HOUR - 600}


def test_who_has_no_limit_may_never_end_so_nothing_is_said() -> None:
    assert ends(running(1, HOUR), running(2, 0), waiting(3)) == {}
    assert ends(running(1, HOUR), waiting(3), waiting(4), waiting(5)) == {3: HOUR}
    assert ends(running(1, HOUR), waiting(3, HOUR), waiting(4)) == {3: HOUR, 4: HOUR}
    assert ends(waiting(3)) == {}


def test_of_a_session_without_a_record_nobody_knows_an_end() -> None:
    stranger = held_session(plan({"agent1": 1}), "agent1")
    facts = readings(agent1=agent_facts("agent1", sessions=[stranger]))
    assert ends(running(1, HOUR), waiting(3), cluster=facts) == {}
    elsewhere = readings("agent1", agent2=agent_facts("agent2", sessions=[stranger], resource_group="gpu"))
    assert ends(running(1, HOUR), waiting(3), cluster=elsewhere) == {3: HOUR}


def test_other_resource_groups_make_no_difference() -> None:
    assert ends(running(1, HOUR), running(2, 0, resource_group="gpu"), waiting(3)) == {3: HOUR}
    assert ends(running(1, HOUR, resource_group="gpu"), waiting(3)) == {}
