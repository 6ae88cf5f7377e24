"""Logs that are followed: the agents are asked without a playbook, and only of the caller's session."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._report import follow
from backendai_manager.errors import CancelledError, CommandError
from backendai_manager.manager import following
from backendai_manager.manager.channel import Channel
from backendai_manager.manager.slots import Slots
from backendai_manager.protocol import Result
from tests.unit.builders import plan
from tests.unit.plugins.plugin_utils._report.test_follow import part
from tests.unit.roles.manager.manager_host import ALICE, BOB, IDS, ManagerHost, record

ONE, TWO = plan({"agent1": 1}, command="train"), plan({"agent1": 1, "agent2": 1}, command="train")
EXITED = {"main1": {"status": "exited"}}
KERNELS = [{"hostname": "main1", "agent": "agent1"}, {"hostname": "sub1", "agent": "agent2"}]


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read again at once."""
    monkeypatch.setattr(follow, "PAUSE", 0.01)
    monkeypatch.setattr(following, "CANCEL_SECONDS", 0.01)


def of_one(*lines: str, **changes: Any) -> dict[str, Any]:
    """Return what agent1 has of the session number 1."""
    return of(ONE, *lines, **changes)


def of(planned: Any, *lines: str, **changes: Any) -> dict[str, Any]:
    made = part(*lines, of=planned, **changes)
    return {"parts": [{**made, "id": IDS[1]}], "error": None}


def lines(host: ManagerHost) -> list[str]:
    return [event["text"] for event in host.events if event["event"] == "line"]


def test_lines_arrive_until_the_command_has_ended_and_no_playbook_runs(host: ManagerHost) -> None:
    host.keep(1, ALICE)
    host.runs.agent_answers["agent1"] = [
        of_one("01 one", "02 two"),
        of_one("02 two", "03 three"),
        of_one("03 three", "04 four", containers=EXITED),
    ]
    assert host.ask(ALICE, "logs", session="train", lines=2, follow=True) == Result("done")
    heading, *shown = lines(host)
    assert heading == "== main1 on agent1: running =="
    assert [line.rpartition(" ")[2] for line in shown] == ["one", "two", "three", "four"]
    assert shown[2].startswith("main1: ")
    assert host.runs.made == []
    (first, second, third) = host.runs.asked
    assert first == ("agent1", "logs", {"session_id": IDS[1], "kernel": "", "lines": 2, "since": None})
    assert [asked[2]["since"] for asked in (second, third)] == [{"main1": 1772333942}, {"main1": 1772333943}]


def test_other_agents_end_with_the_command(host: ManagerHost) -> None:
    host.keep(1, ALICE, record=record(1, ALICE, kernels=KERNELS))
    ended = threading.Event()

    def of_agent2(asked: Mapping[str, Any]) -> dict[str, Any]:
        made = of(TWO, "01 x", containers={"sub1": {"status": "running"}})
        made["parts"][0]["logs"] = {"sub1": made["parts"][0]["logs"]["main1"]}
        if asked.get("since"):
            ended.set()
        return made

    def of_agent1(asked: Mapping[str, Any]) -> dict[str, Any]:
        over = bool(asked.get("since")) and ended.wait(10)
        return of(TWO, "01 x", containers=EXITED if over else {"main1": {"status": "running"}})

    host.runs.agent_answers |= {"agent1": of_agent1, "agent2": of_agent2}
    assert host.ask(ALICE, "logs", session="train", follow=True) == Result("done")
    assert [line for line in lines(host) if line.startswith("==")] == [
        "== main1 on agent1: running ==",
        "== sub1 on agent2: running ==",
    ]


@pytest.mark.parametrize("early", [True, False])
def test_an_agent_that_is_lost_is_said_and_the_others_go_on(host: ManagerHost, early: bool) -> None:
    host.keep(1, ALICE, record=record(1, ALICE, kernels=KERNELS))
    lost = CommandError("no route to host.")
    first = [] if early else [of(TWO, containers={"sub1": {"status": "running"}})]
    host.runs.agent_answers |= {
        "agent1": [of(TWO, "01 one")] * 50 + [of(TWO, "03 three", containers=EXITED)],
        "agent2": [*first, lost],
    }
    result = host.ask(ALICE, "logs", session="train", follow=True)
    assert result == Result("failed", "agent2 could not be read: no route to host.")
    warnings = [event["text"] for event in host.events if event["event"] == "warning"]
    assert early or warnings == ["agent2 could not be read, and only the others are: no route to host."]
    assert lines(host)[-1].endswith(" three")
    assert ("== sub1: agent2 is unavailable: no route to host. ==" in lines(host)) is early


def test_one_container_is_asked_of_its_agent_only(host: ManagerHost) -> None:
    host.keep(1, ALICE, record=record(1, ALICE, kernels=KERNELS))
    host.runs.agent_answers["agent2"] = [of(TWO, ended_at=1.0)] * 2
    assert host.ask(ALICE, "logs", session="train", host="sub1", follow=True).status == "done"
    assert {(agent, options["kernel"]) for agent, _phase, options in host.runs.asked} == {("agent2", "sub1")}
    assert host.ask(ALICE, "logs", session="train", host="sub9", follow=True) == Result(
        "refused", "sub9 is not a container of train; it has main1, sub1."
    )


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"parts": [], "error": None}, "train has just ended."),
        ({"parts": [], "error": "the engine does not answer"}, "agent1 could not be read: the engine does not answer."),
    ],
)
def test_without_anything_to_follow_a_sentence_says_so(
    host: ManagerHost, answer: dict[str, Any], sentence: str
) -> None:
    host.keep(1, ALICE)
    host.runs.agent_answers["agent1"] = [answer]
    assert host.ask(ALICE, "logs", session="train", follow=True) == Result("failed", sentence)
    host.keep(1, ALICE, record=record(1, ALICE, kernels=[{"hostname": "main1", "agent": "agent9"}]))
    assert host.ask(ALICE, "logs", session="train", follow=True).message == (
        "agent9 could not be read: it is not in the manager's inventory."
    )


@pytest.mark.parametrize("state", ["RUNNING", "TERMINATED"])
def test_playbooks_run_in_no_slot_of_followers(host: ManagerHost, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[str] = []

    def note(slots: Slots, *_arguments: object) -> contextlib.AbstractContextManager[None]:
        held.append(slots._folder.name)
        return contextlib.nullcontext()

    monkeypatch.setattr(Slots, "hold", note)
    host.keep(1, ALICE, state=state)
    host.runs.reports |= {
        "session_logs": {"session_logs_path": {"kernels": []}},
    }
    used: list[list[str]] = []
    host.runs.during["session_logs"] = lambda: used.append([*held])
    host.runs.agent_answers["agent1"] = [of_one("01 one", containers=EXITED)] * 2
    assert host.ask(ALICE, "logs", session="train", follow=True) == Result("done")
    assert used == ([] if state == "RUNNING" else [["slots"]])
    assert held == (["slots", "followers"] if state == "RUNNING" else ["slots"])


def test_a_session_that_waits_has_nothing_to_follow(host: ManagerHost) -> None:
    host.keep(1, ALICE, state="PENDING", record=record(1, ALICE, status="PENDING", kernels=[]))
    host.runs.reports["list_sessions"]["session_list_path"] = [record(1, ALICE, status="PENDING", kernels=[])]
    assert host.ask(ALICE, "logs", session="train", follow=True) == Result(
        "failed", "train is PENDING: its containers do not exist yet."
    )


def test_nobody_follows_the_session_of_somebody_else(host: ManagerHost) -> None:
    host.keep(1, BOB)
    for word in ("train", IDS[1]):
        assert host.ask(ALICE, "logs", session=word, follow=True).status == "refused"
    assert host.runs.asked == []


def test_the_end_of_the_users_part_ends_the_following_whatever_an_agent_does(host: ManagerHost) -> None:
    host.keep(1, ALICE)
    release = threading.Event()

    def hang(_asked: Mapping[str, Any]) -> dict[str, Any]:
        host.cancel()
        release.wait(60)
        return {"parts": [], "error": None}

    host.runs.agent_answers["agent1"] = hang
    assert host.ask(ALICE, "logs", session="train", follow=True) == Result("failed", "cancelled.")
    release.set()


def test_logs_of_an_ended_session_stop_with_the_users_part(host: ManagerHost) -> None:
    host.keep(1, ALICE, state="TERMINATED")
    kernel = {"hostname": "main1", "agent": "agent1", "status": "exited", "exit_code": 3, "log": ["one"] * 9}
    report = {"kernels": [{**kernel, "apps": {}, "error": None}]}
    host.runs.reports["session_logs"] = {"session_logs_path": report}
    channel = Channel(*os.pipe())
    channel.event("line", text="before")
    channel._cancelled.set()
    with pytest.raises(CancelledError):
        following.show_logs(channel, report)
    assert os.read(channel._source, 1 << 16).count(b"\n") == 1
    os.close(channel._source)
    os.close(channel._target)


def test_what_an_ended_session_has_printed_is_shown_once(host: ManagerHost) -> None:
    host.keep(1, ALICE, state="TERMINATED")
    kernel = {"hostname": "main1", "agent": "agent1", "status": "exited", "exit_code": 3, "log": ["one"]}
    report = {"kernels": [{**kernel, "apps": {}, "error": None}]}
    host.runs.reports["session_logs"] = {"session_logs_path": report}
    assert host.ask(ALICE, "logs", session="train", follow=True) == Result("done")
    assert lines(host) == ["== main1 on agent1: exited with code 3 ==", "one"]
    assert host.runs.asked == []
