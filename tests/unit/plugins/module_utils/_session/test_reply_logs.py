"""The logs of one reply share its bytes: what a session prints takes no memory of agent and manager."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._session import reply_logs
from ansible_collections.backendai.cluster.plugins.module_utils._session.logs import read_logs
from ansible_collections.backendai.cluster.plugins.module_utils._session.output import find_kept, keep_output, read_kept
from ansible_collections.backendai.cluster.plugins.module_utils._session.reply_logs import ReplyLogs, encode_end
from tests.unit.builders import SESSION_ID, held, plan
from tests.unit.plugins.module_utils._session.test_logs import TIME, add, by_hostname, write_app_logs

APPS = [{"name": f"a{number}", "port": 9000 + number} for number in range(32)]
MADE = plan({"agent1": 12}, apps=APPS)
# Each of these bytes is seven of a reply.
BOMB = b"\1" * (1 << 18)


def printed_by_a_hostile_session(engine: Any, store: Store) -> None:
    write_app_logs(store, **{str(app["name"]): BOMB for app in APPS})
    add(engine, "main1", Log=[(TIME, BOMB + b"\n")])
    for number in range(1, 12):
        add(engine, f"sub{number}", Log=[(TIME, BOMB + b"\n")])


def size(part: Any) -> int:
    return len(json.dumps({"result": {"parts": [part], "error": None}}))


def test_logs_that_become_seven_times_as_large_do_not_make_a_reply_larger(engine: Any, store: Store) -> None:
    # Finding 10: 40 apps made a reply of 280 MiB.
    printed_by_a_hostile_session(engine, store)
    part = read_logs(engine, store, held(MADE), "", 9, ReplyLogs())
    assert size(part) < reply_logs.BYTES + (1 << 18)
    assert [len(json.loads(log["log"])) for log in part["logs"].values()] == [1] * 12
    assert part["logs"]["sub1"]["error"] == (
        "only the end of its log is shown, since all logs of one answer share 12 MiB: read those of sub1 alone"
    )


def test_two_sessions_of_one_name_share_one_reply(engine: Any, store: Store) -> None:
    printed_by_a_hostile_session(engine, store)
    reply = ReplyLogs()
    parts = [read_logs(engine, store, held(MADE), "", 9, reply) for _session in range(2)]
    assert sum(map(size, parts)) < reply_logs.BYTES + (1 << 19)


def test_what_was_kept_of_a_hostile_session_is_no_larger(engine: Any, store: Store) -> None:
    printed_by_a_hostile_session(engine, store)
    keep_output(engine, store, held(MADE), by_hostname(engine))
    kept = find_kept(store, SESSION_ID)
    assert kept
    assert size(read_kept(store, kept, "", 9, ReplyLogs())) < reply_logs.BYTES + (1 << 18)


def test_main1_has_half_and_small_logs_leave_their_shares_to_large_ones(engine: Any, store: Store) -> None:
    add(engine, "main1", Log=[(TIME, b"one\n")])
    for number in range(1, 11):
        add(engine, f"sub{number}", Log=[(TIME, b"two\n")])
    add(engine, "sub11", Log=[(TIME, BOMB + b"\n")])
    part = read_logs(engine, store, held(MADE), "", 9, ReplyLogs())
    assert {log["error"] for log in part["logs"].values()} == {None}


def test_a_container_read_alone_has_all_of_the_reply(engine: Any, store: Store) -> None:
    printed_by_a_hostile_session(engine, store)
    together = read_logs(engine, store, held(MADE), "", 9, ReplyLogs())["logs"]["sub1"]["log"]
    alone = read_logs(engine, store, held(MADE), "sub1", 9, ReplyLogs())["logs"]["sub1"]
    assert len(alone["log"]) > 1.5 * len(together)
    assert alone["error"] is None


def test_the_last_lines_are_those_that_fit() -> None:
    lines = [f"line {number}" for number in range(100)]
    text, cut = encode_end(lines, 200)
    assert (json.loads(text), cut) == (lines[-len(json.loads(text)) :], True)
    assert 8 < len(json.loads(text)) < 20
    assert encode_end(lines, 5000) == (json.dumps(lines), False)


def test_of_a_line_that_does_not_fit_the_end_is_shown() -> None:
    text, cut = encode_end(["a" * 1000 + "end"], 300)
    assert (json.loads(text)[0][:2], json.loads(text)[0][-4:], cut) == ("…a", "aend", True)
    assert encode_end(["\1" * 100], 20) == ("[]", True)


@given(lines=some.lists(some.text(max_size=60), max_size=20), limit=some.integers(12, 2000))
def test_no_text_takes_more_of_a_reply_than_it_may(lines: list[str], limit: int) -> None:
    text, cut = encode_end(lines, limit)
    assert len(json.dumps(text)) <= limit
    assert cut == (json.loads(text) != lines)


@pytest.mark.parametrize("since", [{}, {"main1": 7}])
def test_what_is_new_is_asked_of_each_container_from_its_own_moment(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch, since: dict[str, int]
) -> None:
    asked: dict[str, Any] = {}
    whole = engine.logs

    def note(container: str, **options: Any) -> Any:
        asked[container] = options.get("since")
        return whole(container, **options)

    monkeypatch.setattr(engine, "logs", note)
    write_app_logs(store, a0=b"served\n")
    add(engine, "main1")
    add(engine, "sub1")
    part = read_logs(engine, store, held(MADE), "", 9, ReplyLogs(), since)
    assert asked == {"id-main1": since.get("main1"), "id-sub1": None}
    assert part["logs"]["main1"]["apps"] == {}
