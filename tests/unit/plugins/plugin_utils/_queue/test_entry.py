"""State transitions of queue entries, and their files."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.images import ImageIdentity
from ansible_collections.backendai.cluster.plugins.module_utils._model.plain_data import MAX_WHOLE
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import (
    STATES,
    CorruptEntryError,
    Owner,
    QueueEntry,
    expired_history,
    forget_start,
    mark_creating,
    mark_pending,
    mark_terminated,
    mark_terminating,
    recorded_plans,
    timed_out,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import CHOICES, PROTOCOLS
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import specification
from tests.unit.builders import NONCE, NOW, plan, queued, record

OWNER = Owner("manager1 boot", 4711, "123456")
DROPPED: dict[str, Any] = {"spec": None, "plan": None, "nonce": "", "owner": None}


# ---- state transitions


def test_a_session_waits_starts_and_waits_again() -> None:
    first = queued(1)
    begun = mark_creating(first, OWNER, NOW + 5, plan(), NONCE)
    last: dict[str, Any] = {"plan": plan(), "nonce": NONCE, "has_started": True}
    assert begun == dataclasses.replace(first, state="CREATING", owner=OWNER, updated_at=NOW + 5, **last)
    refused = mark_pending(begun, {"status": "PENDING", "pending": {}}, NOW + 6)
    assert refused == dataclasses.replace(
        first, record={"status": "PENDING", "pending": {}}, updated_at=NOW + 6, **last
    )
    assert forget_start(refused) == dataclasses.replace(refused, plan=None, nonce="")
    assert mark_pending(begun, begun.record, NOW + 6, failed=True).attempts == 1


def test_what_is_ending_names_its_agents_and_drops_the_request() -> None:
    begun = mark_creating(queued(1, spec={"env": {"TOKEN": "hunter2"}}), OWNER, NOW + 5, plan(), NONCE)
    going = mark_terminating(begun, {"status": "RUNNING"}, ["agent1", "agent2"], NOW + 6)
    changes: dict[str, Any] = {"record": {"status": "RUNNING"}, "agents": ("agent1", "agent2"), "updated_at": NOW + 6}
    assert going == dataclasses.replace(begun, state="TERMINATING", **changes, **DROPPED)
    terminated = mark_terminated(going, {"status": "TERMINATED"}, NOW + 7)
    changes = {"record": {"status": "TERMINATED"}, "agents": (), "updated_at": NOW + 7}
    assert terminated == dataclasses.replace(going, state="TERMINATED", **changes, **DROPPED)
    assert "hunter2" not in going.to_json() + terminated.to_json()


@pytest.mark.parametrize("nonce", ["../../etc", NONCE + "\n", NONCE.upper(), "n"])
def test_what_agents_know_a_start_by_is_a_nonce(nonce: str) -> None:
    """Agents name a file by it."""
    with pytest.raises(ValueError, match=r"^nonce is not one$"):
        queued(1, nonce=nonce)


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
        has_started=draw(st.booleans()),
        attempts=draw(st.integers(0, MAX_WHOLE)),
        owner=draw(st.none() | st.builds(Owner, texts, st.integers(1, 1 << 21), texts)),
        agents=tuple(draw(st.lists(texts, max_size=3))),
        pending_timeout=draw(st.integers(0, MAX_WHOLE)),
        plan=draw(st.sampled_from([plan(), None])),
        attended=draw(st.booleans()),
        images=draw(st.dictionaries(texts, st.builds(ImageIdentity, texts, texts, texts), max_size=2)),
        limited=draw(st.booleans()),
    )


@given(any_entry())
def test_an_entry_comes_back_as_it_was_written(entry: QueueEntry) -> None:
    assert QueueEntry.from_json(entry.to_json(), "x.json") == entry
    assert QueueEntry.from_json(entry.to_json().encode(), "x.json") == entry


WHOLE = json.loads(queued(1, owner=OWNER).to_json())


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
            {**WHOLE, "version": 4},
            "written by a newer release, with state version 4: update backendai.cluster on the control node",
        ),
        ({**WHOLE, "version": 2}, "written before 0.2.0: see the changelog"),
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
        ({"version": 3, "id": "x"}, None),
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
        "a version before 0.2.0",
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
