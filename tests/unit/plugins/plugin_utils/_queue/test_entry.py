"""The order of PENDING sessions, freedom from starvation, and state transitions."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.images import ImageIdentity
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import (
    DEFAULT_MAX_SKIPS,
    STATES,
    CorruptEntryError,
    Owner,
    QueueEntry,
    abandoned,
    blocked_by,
    count_skips,
    dominant_shares,
    expired_history,
    mark_creating,
    mark_pending,
    mark_terminated,
    mark_terminating,
    recorded_plans,
    sort_pending,
    timed_out,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import CHOICES, PROTOCOLS
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import specification
from tests.unit.builders import NOW, plan, queued, record

POLICIES = specification()["session_queue_policy"]["choices"]
ALL_POLICIES = pytest.mark.parametrize("policy", POLICIES)
OWNER = Owner("manager1 boot", 4711, "123456")
DROPPED: dict[str, Any] = {"spec": None, "owner": None}


def numbers(entries: list[QueueEntry]) -> list[int]:
    return [int(entry.id[:8], 16) for entry in entries]


described: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    user=st.sampled_from("abc"),
    resource_group=st.sampled_from(["default", "other"]),
    priority=st.integers(0, 2),
    skipped=st.integers(0, 3),
    enqueued_at=st.integers(0, 3).map(float),
    state=st.sampled_from(["PENDING", "PENDING", "CREATING"]),
)
some_entries = st.lists(described, max_size=8).map(
    lambda listed: [queued(number, **fields) for number, fields in enumerate(listed)]
)
some_shares = st.dictionaries(st.sampled_from("abc"), st.sampled_from([0.0, 0.25, 0.5]))


# ---- the order


@ALL_POLICIES
@given(some_entries, some_shares, st.integers(0, 4), st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_how_the_entries_are_listed(
    policy: str, entries: list[QueueEntry], shares: dict[str, float], max_skips: int, random: Any
) -> None:
    shuffled = random.sample(entries, len(entries))
    assert sort_pending(entries, policy, shares, max_skips) == sort_pending(shuffled, policy, shares, max_skips)


@ALL_POLICIES
@given(some_entries, some_shares)
def test_each_that_waits_is_in_the_order_once(policy: str, entries: list[QueueEntry], shares: dict[str, float]) -> None:
    ordered = sort_pending(entries, policy, shares)
    assert sorted(numbers(ordered)) == numbers([entry for entry in entries if entry.state == "PENDING"])


@ALL_POLICIES
@given(some_entries, some_shares, st.integers(0, 4))
def test_due_sessions_are_sorted_by_arrival_and_others_by_priority(
    policy: str, entries: list[QueueEntry], shares: dict[str, float], max_skips: int
) -> None:
    for first, second in itertools.pairwise(sort_pending(entries, policy, shares, max_skips)):
        due = (first.skipped >= max_skips, second.skipped >= max_skips)
        assert due != (False, True)
        if all(due):
            assert first.arrival_key < second.arrival_key
        elif not any(due):
            assert first.priority >= second.priority


@pytest.mark.parametrize(
    ("policy", "order"), [("fifo", [1, 2, 3, 4]), ("lifo", [4, 3, 2, 1]), ("drf", [3, 2, 4, 1])], ids=POLICIES
)
def test_each_policy_has_its_order(policy: str, order: list[int]) -> None:
    entries = [queued(1, user="rich"), queued(2, user="poor"), queued(3, user="new"), queued(4, user="poor")]
    assert numbers(sort_pending(entries, policy, {"rich": 0.5, "poor": 0.1})) == order


@ALL_POLICIES
def test_what_arrived_in_the_same_moment_goes_by_id(policy: str) -> None:
    assert numbers(sort_pending([queued(2, enqueued_at=NOW), queued(1, enqueued_at=NOW)], policy, {})) == [1, 2]


@ALL_POLICIES
def test_a_higher_priority_goes_first_whatever_the_policy(policy: str) -> None:
    entries = [queued(1), queued(2, priority=90, user="rich"), queued(3)]
    assert numbers(sort_pending(entries, policy, {"rich": 1.0}))[0] == 2


@ALL_POLICIES
def test_a_session_that_is_due_goes_before_all_others(policy: str) -> None:
    entries = [queued(1), queued(2, skipped=DEFAULT_MAX_SKIPS, priority=0, user="rich"), queued(3, priority=90)]
    assert numbers(sort_pending(entries, policy, {"rich": 1.0}))[0] == 2


# ---- due sessions


@pytest.mark.parametrize(
    ("due", "blocks"),
    [
        ({}, True),
        ({"skipped": 3}, True),
        ({"state": "CREATING"}, True),
        ({"priority": 11}, True),
        ({"priority": 9}, False),
        ({"skipped": 1}, False),
        ({"resource_group": "other"}, False),
        ({"state": "TERMINATING", "spec": None}, False),
        ({"state": "TERMINATED", "spec": None}, False),
    ],
    ids=[
        "just due",
        "more than due",
        "a run is at work",
        "a higher priority",
        "a lower priority",
        "not due yet",
        "another resource group",
        "being taken away",
        "history",
    ],
)
@pytest.mark.parametrize("own", [[], [queued(5)]], ids=["a new one", "one that waits too"])
def test_later_sessions_wait_behind_a_due_session(own: list[QueueEntry], due: dict[str, Any], blocks: bool) -> None:
    first = queued(1, **{"skipped": 2, **due})
    candidate = own[0].id if own else "new"
    assert blocked_by([*own, first], 10, "default", 2, candidate) == (first if blocks else None)


def test_a_due_session_does_not_wait_behind_itself_nor_behind_later_ones() -> None:
    entries = [queued(1, skipped=2), queued(2, skipped=2)]
    assert blocked_by(entries, 10, "default", 2, entries[0].id) is None
    assert blocked_by(entries, 10, "default", 2, entries[1].id) == entries[0]


def test_the_earliest_of_those_ahead_is_named() -> None:
    entries = [queued(3, skipped=DEFAULT_MAX_SKIPS), queued(1), queued(2, skipped=DEFAULT_MAX_SKIPS)]
    assert blocked_by(entries, 10, "default") == entries[2]


@given(some_entries, st.integers(0, 4))
def test_the_first_of_those_that_wait_is_never_blocked(entries: list[QueueEntry], max_skips: int) -> None:
    at_rest = [entry for entry in entries if entry.state == "PENDING"]
    for first in sort_pending(at_rest, "fifo", {}, max_skips)[:1]:
        assert blocked_by(at_rest, first.priority, first.resource_group, max_skips, first.id) is None


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        ({}, True),
        ({"priority": 11}, True),
        ({"priority": 9}, False),
        ({"resource_group": "other"}, False),
        ({"enqueued_at": NOW + 6}, False),
        ({"state": "CREATING"}, False),
        ({"state": "TERMINATING", "spec": None}, False),
        ({"state": "TERMINATED", "spec": None}, False),
    ],
    ids=["the same", "higher", "lower", "another group", "later", "starting", "ending", "ended"],
)
def test_skips_count_for_earlier_sessions_of_no_lower_priority(changes: dict[str, Any], counted: bool) -> None:
    entry, started = queued(1, skipped=4, **changes), queued(5)
    assert count_skips([entry, started], started) == ([dataclasses.replace(entry, skipped=5)] if counted else [])


# ---- no starvation


def ask_of(entry: QueueEntry) -> dict[str, int]:
    assert entry.spec
    return entry.spec


class Cluster:
    """Agents with ``CAPACITY`` in each resource group, and a queue that is scheduled now and then.

    A request's ``spec`` says its ``size`` and for how many steps it runs (``life``). What came in and started when is
    kept apart from what the queue itself remembers, and each start is held against the rules.
    """

    CAPACITY = 6

    def __init__(self, policy: str, max_skips: int) -> None:
        self.policy, self.max_skips, self.now = policy, max_skips, 0
        self.waiting: dict[str, QueueEntry] = {}
        self.running: dict[str, tuple[QueueEntry, int]] = {}
        self.passes: collections.Counter[str] = collections.Counter()
        self.started: list[str] = []
        self._numbers = itertools.count(1)

    def free(self, group: str) -> int:
        taken = sum(ask_of(entry)["size"] for entry, _end in self.running.values() if entry.resource_group == group)
        assert taken <= self.CAPACITY
        return self.CAPACITY - taken

    def shares(self) -> dict[str, float]:
        usage: dict[str, dict[str, float]] = {}
        for entry, _end in self.running.values():
            of_user = usage.setdefault(entry.user, {"cpu": 0})
            of_user["cpu"] += ask_of(entry)["size"]
        return dominant_shares(usage, {"cpu": 2 * self.CAPACITY})

    def step(self) -> None:
        self.now += 1
        self.running = {key: (entry, end) for key, (entry, end) in self.running.items() if end > self.now}

    def arrive(self, **options: Any) -> QueueEntry:
        """Add a session and, as ``create_session`` does, try to start it at once."""
        entry = queued(next(self._numbers), enqueued_at=float(self.now), **options)
        self.waiting[entry.id] = entry
        self.try_start(entry)
        return entry

    def schedule(self) -> None:
        while any(map(self.try_start, sort_pending(self.waiting.values(), self.policy, self.shares(), self.max_skips))):
            pass

    def try_start(self, entry: QueueEntry) -> bool:
        if not self.may_start(entry):
            return False
        self.hold_against_the_rules(entry)
        del self.waiting[entry.id]
        self.running[entry.id] = entry, self.now + ask_of(entry)["life"]
        self.waiting.update({entry.id: entry for entry in count_skips(self.waiting.values(), entry)})
        return True

    def may_start(self, entry: QueueEntry) -> bool:
        ahead = blocked_by(self.waiting.values(), entry.priority, entry.resource_group, self.max_skips, own_id=entry.id)
        return not ahead and ask_of(entry)["size"] <= self.free(entry.resource_group)

    def hold_against_the_rules(self, entry: QueueEntry) -> None:
        assert entry.id not in self.started
        self.started.append(entry.id)
        for other in self.waiting.values():
            if other.resource_group == entry.resource_group and other.arrival_key < entry.arrival_key:
                self.passes[other.id] += other.priority >= entry.priority
                assert self.passes[other.id] <= self.max_skips


request: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    user=st.sampled_from("abc"),
    resource_group=st.sampled_from(["default", "default", "other"]),
    priority=st.integers(0, 10),
    spec=st.builds(dict, size=st.integers(1, Cluster.CAPACITY), life=st.integers(1, 4)),
)
traffic = st.lists(st.lists(request, max_size=2), min_size=1, max_size=5)
small_ones = st.lists(
    st.lists(
        st.builds(
            lambda options, size: {**options, "spec": {**options["spec"], "size": size}}, request, st.integers(1, 2)
        ),
        max_size=2,
    ),
    min_size=1,
    max_size=5,
)


def steps(cluster: Cluster, arrivals: list[list[dict[str, Any]]], every: int, count: int) -> Iterator[None]:
    """Add the same sessions repeatedly, and schedule the queue at every ``every``-th step."""
    for number, coming in enumerate(itertools.islice(itertools.cycle(arrivals), count)):
        cluster.step()
        for options in coming:
            cluster.arrive(**options)
        if number % every == 0:
            cluster.schedule()
        yield


@ALL_POLICIES
@given(traffic, small_ones, st.integers(0, 4), st.integers(1, 3))
def test_a_large_session_starts_however_many_small_ones_keep_coming(
    policy: str, before: list[list[dict[str, Any]]], after: list[list[dict[str, Any]]], max_skips: int, every: int
) -> None:
    cluster = Cluster(policy, max_skips)
    for _step in steps(cluster, before, every, 3):
        pass
    earlier = len(cluster.waiting)
    large = cluster.arrive(priority=10, spec={"size": Cluster.CAPACITY, "life": 1})
    # The longest lifetime and the longest time until the next schedule, for each session that may start before.
    longest = (4 + 3) * (earlier + max_skips + 1)
    for _step in steps(cluster, after, every, longest):
        if large.id in cluster.started:
            break
    assert large.id in cluster.started
    assert cluster.passes[large.id] <= max_skips


@ALL_POLICIES
def test_without_the_rule_the_large_one_would_wait_for_ever(policy: str) -> None:
    after = [[{"user": "a", "spec": {"size": 1, "life": 2}}]]
    outcomes = {}
    for max_skips in (DEFAULT_MAX_SKIPS, 10**9):
        cluster = Cluster(policy, max_skips)
        for _step in steps(cluster, after, 1, 2):
            pass
        large = cluster.arrive(user="a", spec={"size": Cluster.CAPACITY, "life": 1})
        for _step in steps(cluster, after, 1, 200):
            pass
        outcomes[max_skips] = (large.id in cluster.started, cluster.passes[large.id])
    assert outcomes == {DEFAULT_MAX_SKIPS: (True, DEFAULT_MAX_SKIPS), 10**9: (False, 200)}


@ALL_POLICIES
@given(traffic, st.integers(0, 4), st.integers(1, 3))
def test_no_session_starts_twice_or_is_skipped_too_often(
    policy: str, arrivals: list[list[dict[str, Any]]], max_skips: int, every: int
) -> None:
    cluster = Cluster(policy, max_skips)
    for number, _step in enumerate(steps(cluster, arrivals, every, 20)):
        if number % every == 0:
            assert not any(map(cluster.may_start, cluster.waiting.values()))
    arrived = sum(len(coming) for coming in itertools.islice(itertools.cycle(arrivals), 20))
    assert len(cluster.started) + len(cluster.waiting) == arrived


@ALL_POLICIES
def test_a_higher_priority_passes_a_due_session_and_is_not_counted(policy: str) -> None:
    cluster = Cluster(policy, 1)
    cluster.arrive(spec={"size": 3, "life": 99})
    large = cluster.arrive(spec={"size": 4, "life": 1})
    small = {"size": 1, "life": 99}
    passing, blocked, urgent = (cluster.arrive(spec=small, priority=priority) for priority in (10, 10, 11))
    other = cluster.arrive(spec=small, resource_group="other")
    assert {passing.id, urgent.id, other.id} <= set(cluster.started)
    assert blocked.id in cluster.waiting
    assert cluster.waiting[large.id].skipped == 1


def test_drf_prefers_the_user_with_the_smallest_share() -> None:
    cluster = Cluster("drf", DEFAULT_MAX_SKIPS)
    full = cluster.arrive(user="rich", spec={"size": Cluster.CAPACITY, "life": 1})
    cluster.arrive(user="rich", resource_group="other", spec={"size": 3, "life": 99})
    for user in ("rich", "rich", "poor", "poor"):
        cluster.arrive(user=user, spec={"size": 2, "life": 99})
    cluster.step()
    assert full.id not in cluster.running
    cluster.schedule()
    assert sorted(entry.user for entry in cluster.waiting.values()) == ["rich"]


# ---- shares


@pytest.mark.parametrize(
    ("usage", "shares"),
    [
        ({}, {}),
        ({"a": {}}, {"a": 0.0}),
        ({"a": {"cpu": 3, "mem": 12}, "b": {"cpu": 6, "mem": 2}}, {"a": 12 / 18, "b": 6 / 9}),
        ({"a": {"cuda.device": 2}}, {"a": 0.0}),
        ({"a": {"shmem": 5, "cpu": 9}}, {"a": 1.0}),
    ],
    ids=["no users", "nothing", "the example of the paper", "a slot that has gone", "a slot that is not counted"],
)
def test_the_dominant_share_is_the_largest_of_all_slots(
    usage: dict[str, dict[str, float]], shares: dict[str, float]
) -> None:
    assert dominant_shares(usage, {"cpu": 9, "mem": 18, "cuda.device": 0}) == shares


# ---- state transitions


def test_a_session_waits_starts_and_waits_again() -> None:
    first = queued(1, skipped=3)
    begun = mark_creating(first, OWNER, NOW + 5)
    assert begun == dataclasses.replace(first, state="CREATING", owner=OWNER, updated_at=NOW + 5)
    refused = mark_pending(begun, {"status": "PENDING", "pending": {}}, NOW + 6)
    assert refused == dataclasses.replace(first, record={"status": "PENDING", "pending": {}}, updated_at=NOW + 6)
    assert mark_pending(begun, begun.record, NOW + 6, failed=True).attempts == 1


def test_what_is_ending_names_its_agents_and_drops_the_request() -> None:
    begun = mark_creating(queued(1, spec={"env": {"TOKEN": "hunter2"}}), OWNER, NOW + 5)
    going = mark_terminating(begun, {"status": "RUNNING"}, ["agent1", "agent2"], NOW + 6)
    changes: dict[str, Any] = {"record": {"status": "RUNNING"}, "agents": ("agent1", "agent2"), "updated_at": NOW + 6}
    assert going == dataclasses.replace(begun, state="TERMINATING", **changes, **DROPPED)
    terminated = mark_terminated(going, {"status": "TERMINATED"}, NOW + 7)
    changes = {"record": {"status": "TERMINATED"}, "agents": (), "updated_at": NOW + 7}
    assert terminated == dataclasses.replace(going, state="TERMINATED", **changes, **DROPPED)
    assert "hunter2" not in going.to_json() + terminated.to_json()


def test_what_has_ended_does_not_wait_again() -> None:
    terminated = mark_terminated(queued(1), {"status": "CANCELLED"}, NOW)
    with pytest.raises(ValueError, match=r"^the state PENDING requires a spec$"):
        mark_pending(terminated, {}, NOW)


def test_a_run_that_starts_its_own_session_keeps_the_request_to_itself() -> None:
    begun = mark_creating(queued(1, state="CREATING", spec=None), OWNER, NOW)
    assert QueueEntry.from_json(begun.to_json(), "x.json").spec is None


@pytest.mark.parametrize("state", ["TERMINATING", "TERMINATED"])
def test_what_has_ended_keeps_no_request(state: str) -> None:
    with pytest.raises(ValueError, match=rf"^the state {state} must not have a spec$"):
        queued(1, state=state)


@pytest.mark.parametrize(
    ("changes", "waited", "expected"),
    [
        ({"pending_timeout": 60}, 59.9, False),
        ({"pending_timeout": 60}, 60.0, True),
        ({"pending_timeout": 0}, 1e9, False),
        ({"pending_timeout": 60, "state": "CREATING"}, 61.0, False),
        ({"pending_timeout": 60, "state": "TERMINATED", "spec": None}, 61.0, False),
    ],
    ids=["waits still", "over", "no limit", "starts just now", "history"],
)
def test_a_session_times_out_after_its_pending_timeout(changes: dict[str, Any], waited: float, expected: bool) -> None:
    assert timed_out(queued(1, enqueued_at=NOW, updated_at=NOW + 50, **changes), NOW + waited) == expected


@pytest.mark.parametrize("alive", [True, False], ids=["alive", "dead"])
@pytest.mark.parametrize("state", STATES)
def test_only_the_start_of_a_dead_run_is_abandoned(state: str, alive: bool) -> None:
    entry = queued(1, state=state, spec={} if state in ("PENDING", "CREATING") else None)
    assert abandoned(entry, alive) == (state == "CREATING" and not alive)


def test_history_is_removed_after_some_days() -> None:
    day = 86400
    old, older = (
        queued(n, state="TERMINATED", spec=None, updated_at=NOW - age * day) for n, age in ((1, 2), (2, 2.01))
    )
    entries = [
        old,
        older,
        queued(3, updated_at=NOW - 9 * day),
        queued(4, state="TERMINATING", spec=None, updated_at=0.0),
    ]
    assert expired_history(entries, NOW, 2) == [older]


# ---- files

texts = st.text(max_size=5)
json_data = st.dictionaries(
    texts,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
        max_leaves=4,
    ),
    max_size=3,
)


REQUEST = queued(1).spec


@st.composite
def any_entry(draw: st.DrawFn) -> QueueEntry:
    state = draw(st.sampled_from(STATES))
    times = st.floats(0, 1e10)
    maybe = st.sampled_from([REQUEST, None])
    return QueueEntry(
        *(draw(texts), draw(texts), state, draw(texts), draw(texts), draw(st.integers(0, 100))),
        spec=draw({"PENDING": st.just(REQUEST), "CREATING": maybe, "RUNNING": maybe}.get(state, st.none())),
        record={**draw(json_data), **record(status=state)},
        enqueued_at=draw(times),
        updated_at=draw(times),
        skipped=draw(st.integers(0)),
        attempts=draw(st.integers(0)),
        owner=draw(st.none() | st.builds(Owner, texts, st.integers(1, 1 << 21), texts)),
        agents=tuple(draw(st.lists(texts, max_size=3))),
        pending_timeout=draw(st.integers(0)),
        plan=draw(st.sampled_from([plan(), None])),
        attended=draw(st.booleans()),
        images=draw(st.dictionaries(texts, st.builds(ImageIdentity, texts, texts, texts), max_size=2)),
    )


@given(any_entry())
def test_an_entry_comes_back_as_it_was_written(entry: QueueEntry) -> None:
    assert QueueEntry.from_json(entry.to_json(), "x.json") == entry
    assert QueueEntry.from_json(entry.to_json().encode(), "x.json") == entry


WHOLE = json.loads(queued(1, owner=OWNER).to_json())


@pytest.mark.parametrize("unversioned", [True, False], ids=["without a version", "version 1"])
@pytest.mark.parametrize("state", ["PENDING", "CREATING"])
def test_an_entry_of_version_1_is_migrated(state: str, unversioned: bool) -> None:
    entry = queued(1, state=state, owner=OWNER if state == "CREATING" else None)
    data = json.loads(entry.to_json())
    assert data.pop("version") == 2
    del data["attended"], data["images"]
    content = json.dumps(data if unversioned else {"version": 1, **data})
    assert QueueEntry.from_json(content, "x.json") == entry


def test_a_damaged_plan_of_a_running_session_is_reported() -> None:
    data = json.loads(queued(1, state="RUNNING", plan=plan()).to_json())
    data["plan"]["kernels"] = []
    with pytest.raises(CorruptEntryError, match="the plan of a session is damaged: it has no containers"):
        QueueEntry.from_json(json.dumps(data), "x.json")


def test_a_plan_of_another_session_is_no_record() -> None:
    own = queued(1, state="RUNNING", plan=dataclasses.replace(plan(), id=queued(1).id))
    assert recorded_plans([own, queued(2, state="RUNNING", plan=plan())]) == {own.id: own.plan}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value: line 1 column 1 (char 0)"),
        (b'{"id": "5f', "Unterminated string starting at: line 1 column 8 (char 7)"),
        (b"\xff", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (b"[" * 100_000, "it has too many levels"),
        ([], "the content is not a mapping"),
        ({**WHOLE, "hunter2": 1}, "the entry: hunter2 is not known"),
        (
            {**WHOLE, "state": "waiting"},
            f"the entry: the data is invalid, because state is none of {', '.join(STATES)}",
        ),
        ({**WHOLE, "spec": None}, "the entry: the data is invalid, because the state PENDING requires a spec"),
        (
            {**WHOLE, "state": "TERMINATED"},
            "the entry: the data is invalid, because the state TERMINATED must not have a spec",
        ),
        ({**WHOLE, "priority": "high"}, "the entry: priority must be a whole number"),
        ({**WHOLE, "agents": "agent1"}, "the entry: agents must be a list"),
        ({**WHOLE, "owner": {}}, None),
        (
            {**WHOLE, "owner": {**WHOLE["owner"], "pid": -1}},
            "the entry: owner is invalid, because no process has such a number",
        ),
        ({**WHOLE, "enqueued_at": math.nan}, "NaN is not a number of JSON"),
        (json.dumps(WHOLE).replace("1800000001.0", "1e999").encode(), "a number is too large"),
        ({**WHOLE, "user": "\ud800"}, "it contains half of a surrogate pair"),
        (
            {**WHOLE, "version": 3},
            "written by a newer release, with state version 3: update backendai.cluster on the control node",
        ),
        ({**WHOLE, "version": "1"}, "its version is not a number from 1"),
        ({**WHOLE, "version": 0}, "its version is not a number from 1"),
        ({**WHOLE, "record": {}}, None),
        ({**WHOLE, "record": {**WHOLE["record"], "kernels": [7]}}, "the record: kernels[0] must be a mapping"),
        ({**WHOLE, "spec": {**WHOLE["spec"], "gpus": 1}}, "the request: gpus is not known"),
        (
            {**WHOLE, "spec": {key: WHOLE["spec"][key] for key in WHOLE["spec"] if key != "apps"}},
            "the request: apps is missing",
        ),
        (
            {**WHOLE, "spec": {**WHOLE["spec"], "cluster_size": 10**12}},
            "session_cluster_size: 1000000000000 must be a whole number from 1 to 1024",
        ),
        (
            {
                **WHOLE,
                "spec": {**WHOLE["spec"], "mounts": [{"source": "/", "target": "/run/backendai", "read_only": False}]},
            },
            "session_mounts[0].target: '/run/backendai' would hide /run/backendai",
        ),
        (
            {**WHOLE, "spec": {**WHOLE["spec"], "failure_policy": "shrug"}},
            "session_failure_policy: 'shrug' must be one of keep, restart, terminate",
        ),
        ({**WHOLE, "owner": {**WHOLE["owner"], "pid": "1"}}, "the entry: owner.pid must be a whole number"),
        ({"id": "x"}, None),
    ],
    ids=[
        "empty",
        "cut off",
        "no text",
        "too deep",
        "a list",
        "a key of another version",
        "an unknown state",
        "no request",
        "a request too many",
        "a word for a number",
        "a text for a list",
        "an owner of nothing",
        "a negative process",
        "no number",
        "an infinite number",
        "half a character",
        "a newer version",
        "a version as text",
        "version 0",
        "a record of nothing",
        "a record of something else",
        "a foreign option",
        "a missing option",
        "a size out of range",
        "a mount that is refused",
        "an unknown choice",
        "a process that is no number",
        "half of it",
    ],
)
def test_a_corrupt_file_is_reported_with_a_remedy(content: Any, reason: str | None) -> None:
    with pytest.raises(CorruptEntryError) as refused:
        QueueEntry.from_json(content if isinstance(content, bytes) else json.dumps(content), "/queue/x.json")
    sentence = str(refused.value)
    assert sentence.startswith("/queue/x.json is corrupt (")
    assert sentence.endswith("): move it to another folder, then create or end its session.")
    assert "missing" in sentence if reason is None else f"({reason})" in sentence
    assert "\n" not in sentence


def test_choices_are_those_of_the_argument_specification() -> None:
    options = specification()
    assert {option: tuple(options[f"session_{option}"]["choices"]) for option in CHOICES} == CHOICES
    assert tuple(options["session_apps"]["options"]["protocol"]["choices"]) == PROTOCOLS
    others = {name for name, option in options.items() if "choices" in option} - {f"session_{name}" for name in CHOICES}
    assert others == {"session_queue_policy", "session_list_format"}


@given(st.binary(max_size=20) | json_data.map(lambda data: json.dumps({**WHOLE, **data}).encode()))
def test_whatever_a_file_holds_is_an_entry_or_refused(content: bytes) -> None:
    with contextlib.suppress(CorruptEntryError):
        entry = QueueEntry.from_json(content, "x.json")
        assert QueueEntry.from_json(entry.to_json(), "x.json") == entry
