"""What is new in a log that is read again and again."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._report import follow as follow_module
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.follow import (
    Follower,
    command_ended,
    follow,
    has_ended,
)
from tests.unit.builders import plan

BATCH = plan({"agent1": 2}, command="python train.py")


def part(*lines: str, of: Any = BATCH, **changes: Any) -> dict[str, Any]:
    """Return a part of a session in which main1 has printed lines, each with the second of its time."""
    log = [f"2026-03-01T02:59:{line[:2]}.000000000Z {line[3:]}" for line in lines]
    logs: dict[str, Any] = {"main1": {"log": json.dumps(log), "apps": {}, "error": None}}
    containers = {"main1": {"status": "running"}, "sub1": {"status": "running"}}
    return {"id": of.id, "batch": bool(of.command), "containers": containers, "logs": logs, **changes}


def texts(follower: Follower, read: dict[str, Any]) -> list[str]:
    return [line.rpartition(" ")[2] for line in follower.new_lines(read)]


def test_only_new_lines_are_shown_once() -> None:
    follower = Follower(part("01 one"))
    assert texts(follower, part("01 one")) == []
    assert texts(follower, part("01 one", "01 same", "03 three")) == ["same", "three"]
    assert texts(follower, part("01 same", "03 three", "03 four")) == ["four"]
    assert list(follower.new_lines(part("05 {{ x }}"))) == ["main1: 2026-03-01T02:59:05.000000000Z {{ x }}"]
    assert follower.since == {"main1": 1772333945}


def test_line_that_was_completed_is_shown_whole() -> None:
    follower = Follower(part("01 hal"))
    assert texts(follower, part("01 half")) == ["half"]


def test_lines_without_a_time_are_left_out() -> None:
    follower = Follower(part("01 one"))
    read = part("02 two")
    read["logs"]["main1"]["log"] = json.dumps(
        ["…the end of a line", *json.loads(read["logs"]["main1"]["log"]), "9999-99"]
    )
    assert texts(follower, read) == ["two"]
    assert follower.since == {"main1": 1772333942}


def test_without_a_line_everything_is_new() -> None:
    follower = Follower(part())
    assert (follower.since, texts(follower, part("01 one"))) == ({}, ["one"])


def test_a_silent_container_does_not_make_a_noisy_one_be_read_from_its_last_line() -> None:
    noisy = part("01 one", "59 two")
    quiet: dict[str, Any] = {"log": json.dumps(["2026-03-01T02:00:00.000000000Z once"]), "apps": {}, "error": None}
    follower = Follower({**noisy, "logs": {**noisy["logs"], "sub1": quiet}})
    assert follower.since == {"main1": 1772333999, "sub1": 1772330400}


@pytest.mark.parametrize(
    ("lines", "asked"),
    [
        (["01 one", "02 two", "03 three"], [3]),
        (["02 two", "03 three"], [3]),
        (["02 two", "03 three", "04 four"], [3, 100_000]),
    ],
    ids=["as many, and no gap", "fewer", "a gap"],
)
def test_only_where_lines_are_missing_more_are_read(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], asked: list[int]
) -> None:
    monkeypatch.setattr(follow_module, "LINES", 3)
    shown: list[str] = []
    counts: list[int] = []

    def read(since: Any, count: int) -> dict[str, Any]:
        assert since == {"agent1": {"main1": 1772333941}}
        counts.append(count)
        return {"agent1": part(*(lines if count == 3 else ["01 more", *lines]), ended_at=1.0)}

    follow({"agent1": part("01 one")}, read, shown.append, threading.Event())
    assert counts == asked
    assert len(shown) == len([line for line in lines if line != "01 one"]) + len(asked) - 1


def test_only_the_agents_with_a_gap_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "LINES", 2)
    shown: list[str] = []
    counts: list[tuple[list[str], int]] = []

    def read(since: Any, count: int) -> dict[str, Any]:
        counts.append(([*since], count))
        lines = {"agent1": ["02 two"], "agent2": ["03 c", "04 d"] if count == 2 else ["02 b", "03 c", "04 d"]}
        return {agent: part(*lines[agent], ended_at=1.0) for agent in since}

    follow({"agent1": part("01 one"), "agent2": part("01 a")}, read, shown.append, threading.Event())
    assert counts == [(["agent1", "agent2"], 2), (["agent2"], 100_000)]
    assert [line.rpartition(" ")[2] for line in shown] == ["two", "b", "c", "d"]


EXITED = {"status": "exited"}


@pytest.mark.parametrize(
    ("changes", "ended", "by_command"),
    [
        ({}, False, False),
        ({"ended_at": 1.0}, True, False),
        ({"containers": {"main1": EXITED, "sub1": {"status": "running"}}}, True, True),
        ({"containers": {"main1": {"status": "running"}, "sub1": EXITED}}, False, False),
        ({"containers": {"sub1": EXITED, "sub2": EXITED}}, True, False),
        ({"containers": {}}, False, False),
        ({"of": plan({"agent1": 2}), "containers": {"main1": EXITED, "sub1": {"status": "running"}}}, False, False),
    ],
)
def test_following_ends_with_the_session_or_its_containers(
    changes: dict[str, Any], ended: bool, by_command: bool
) -> None:
    assert (has_ended(part(**changes)), command_ended(part(**changes))) == (ended, by_command)
