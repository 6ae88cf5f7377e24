"""The order of PENDING sessions, and freedom from starvation."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.policy import (
    DEFAULT_MAX_SKIPS,
    count_skips,
    dominant_shares,
    due_sessions,
    first_ahead,
    sort_pending,
    still_counted,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import specification
from tests.unit.builders import NOW, queued

POLICIES = specification()["session_queue_policy"]["choices"]
ALL_POLICIES = pytest.mark.parametrize("policy", POLICIES)


def numbers(entries: list[QueueEntry]) -> list[int]:
    return [int(entry.id[:8], 16) for entry in entries]


def due(entries: list[QueueEntry], max_skips: int = DEFAULT_MAX_SKIPS) -> list[QueueEntry]:
    return due_sessions(entries, count_skips(entries), max_skips)


described: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    user=st.sampled_from("abc"),
    resource_group=st.sampled_from(["default", "other"]),
    priority=st.integers(0, 2),
    has_started=st.booleans(),
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
    assert sort_pending(entries, policy, shares, due(entries, max_skips)) == sort_pending(
        shuffled, policy, shares, due(shuffled, max_skips)
    )


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
    skips = count_skips(entries)
    for first, second in itertools.pairwise(sort_pending(entries, policy, shares, due(entries, max_skips))):
        are_due = (skips[first.id] >= max_skips, skips[second.id] >= max_skips)
        assert are_due != (False, True)
        if all(are_due):
            assert first.arrival_key < second.arrival_key
        elif not any(are_due):
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
    entries = [queued(1), queued(2, priority=0, user="rich"), queued(3, priority=90)]
    assert numbers(sort_pending(entries, policy, {"rich": 1.0}, entries[1:2]))[0] == 2


# ---- due sessions


def passed_by(entry: QueueEntry, *later: dict[str, Any]) -> int:
    """Return how often a session was skipped: by ``later`` ones that have started."""
    others = [queued(number, **{"has_started": True, **changes}) for number, changes in enumerate(later, 2)]
    return count_skips([*others, entry])[entry.id]


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        ({}, True),
        ({"state": "RUNNING"}, True),
        ({"state": "CREATING"}, True),
        ({"state": "TERMINATING", "spec": None}, True),
        ({"state": "TERMINATED", "spec": None}, True),
        ({"has_started": False}, False),
        ({"state": "TERMINATED", "spec": None, "has_started": False}, False),
        ({"priority": 9}, True),
        ({"priority": 11}, False),
        ({"resource_group": "other"}, False),
        ({"enqueued_at": NOW}, False),
    ],
    ids=[
        "its start has failed",
        "runs",
        "starts",
        "is ending",
        "has ended",
        "waits",
        "was cancelled while it waited",
        "of a lower priority",
        "of a higher priority",
        "of another group",
        "came earlier",
    ],
)
def test_a_session_was_skipped_by_those_that_came_later_and_have_started(
    changes: dict[str, Any], counted: bool
) -> None:
    assert passed_by(queued(1), {}, changes) == 1 + counted


@pytest.mark.parametrize(
    ("changes", "is_due"),
    [({}, True), ({"state": "CREATING"}, True), ({"state": "RUNNING"}, False), ({"enqueued_at": NOW + 3.5}, False)],
    ids=["waits", "a run is at work", "runs", "was skipped less often"],
)
def test_a_session_is_due_once_so_many_have_skipped_it(changes: dict[str, Any], is_due: bool) -> None:
    entries = [queued(1, **changes), *(queued(number, state="RUNNING", has_started=True) for number in (2, 3, 4))]
    assert due(entries, 3) == entries[: int(is_due)]
    assert due(entries, 4) == []


@pytest.mark.parametrize(
    ("changes", "blocks"),
    [
        ({}, True),
        ({"priority": 11}, True),
        ({"priority": 9}, False),
        ({"resource_group": "other"}, False),
        ({"enqueued_at": NOW + 6}, False),
    ],
    ids=["just due", "a higher priority", "a lower priority", "another resource group", "it came later"],
)
def test_later_sessions_wait_behind_a_due_session(changes: dict[str, Any], blocks: bool) -> None:
    first = queued(1, **changes)
    assert first_ahead([first], queued(5)) == (first if blocks else None)
    assert first_ahead([first], queued(5), lambda _entry: False) is None


def test_a_due_session_does_not_wait_behind_itself_nor_behind_later_ones() -> None:
    entries = [queued(1), queued(2)]
    assert [first_ahead(entries, entry) for entry in entries] == [None, entries[0]]


def test_the_earliest_of_those_ahead_is_named() -> None:
    entries = [queued(3), queued(2), *(queued(number, has_started=True, state="RUNNING") for number in (4, 5))]
    assert first_ahead(due(entries, 2), queued(6)) == entries[1]


@given(some_entries, st.integers(0, 4))
def test_the_first_of_those_that_wait_is_never_blocked(entries: list[QueueEntry], max_skips: int) -> None:
    at_rest = [entry for entry in entries if entry.state == "PENDING"]
    for first in sort_pending(at_rest, "fifo", {}, due(at_rest, max_skips))[:1]:
        assert first_ahead(due(at_rest, max_skips), first) is None


# ---- history


@given(some_entries, st.integers(0, 4))
def test_without_what_is_not_needed_the_same_sessions_are_due(entries: list[QueueEntry], max_skips: int) -> None:
    needed = still_counted(entries, max_skips)
    left = [entry for entry in entries if entry.id in needed or entry.state == "PENDING"]
    pending = [entry for entry in due(entries, max_skips) if entry.state == "PENDING"]
    assert [entry for entry in due(left, max_skips) if entry.state == "PENDING"] == pending


def test_a_session_that_waits_for_ever_keeps_no_long_history() -> None:
    ended = [queued(number, state="TERMINATED", spec=None, has_started=True) for number in range(3, 103)]
    waiting = [queued(1), queued(2, resource_group="other")]
    assert still_counted([*waiting, *ended], 2) == {entry.id for entry in ended[-2:]}
    assert still_counted([*waiting[1:], *ended], 2) == set()


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
        self.entries: dict[str, QueueEntry] = {}
        self.running: dict[str, tuple[QueueEntry, int]] = {}
        self.passes: collections.Counter[str] = collections.Counter()
        self.started: list[str] = []
        self._numbers = itertools.count(1)

    @property
    def waiting(self) -> dict[str, QueueEntry]:
        return {name: entry for name, entry in self.entries.items() if entry.state == "PENDING"}

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
        # No history is kept but what still counts.
        kept = {*self.running, *self.waiting, *still_counted(self.entries.values(), self.max_skips)}
        self.entries = {name: entry for name, entry in self.entries.items() if name in kept}

    def arrive(self, **options: Any) -> QueueEntry:
        """Add a session and, as ``create_session`` does, try to start it at once."""
        entry = queued(next(self._numbers), enqueued_at=float(self.now), **options)
        self.entries[entry.id] = entry
        self.try_start(entry)
        return entry

    def schedule(self) -> None:
        while any(map(self.try_start, sort_pending(self.waiting.values(), self.policy, self.shares(), self.due()))):
            pass

    def due(self) -> list[QueueEntry]:
        return due([*self.entries.values()], self.max_skips)

    def try_start(self, entry: QueueEntry) -> bool:
        if not self.may_start(entry):
            return False
        self.hold_against_the_rules(entry)
        self.entries[entry.id] = dataclasses.replace(entry, state="RUNNING", has_started=True)
        self.running[entry.id] = entry, self.now + ask_of(entry)["life"]
        return True

    def may_start(self, entry: QueueEntry) -> bool:
        return not first_ahead(self.due(), entry) and ask_of(entry)["size"] <= self.free(entry.resource_group)

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
    assert count_skips(cluster.entries.values())[large.id] == 1


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
