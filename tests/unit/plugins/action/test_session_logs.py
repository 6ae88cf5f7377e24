"""The action session_logs: lines, what is returned, a file, and following."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action import session_logs
from ansible_collections.backendai.cluster.plugins.action.session_logs import FOLLOW_SECONDS, SECONDS
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._report import follow as following
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import Answer, Failure
from tests.unit.builders import SESSION_ID, plan, queued, record
from tests.unit.plugins.action.asked_hosts import GONE, Asked
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.looks import LookedAt
from tests.unit.plugins.plugin_utils._report import test_follow as follow
from tests.unit.plugins.plugin_utils._report.test_logs import logged

MADE = plan({"agent1": 1, "agent2": 1})
NOTHING: dict[str, Any] = {"parts": [], "error": None}
UNKNOWN = (
    "this control node has no record of the session 'ghost'; give session_id for one that was started elsewhere, which"
    " list_sessions shows."
)


class ActionModule(LookedAt, session_logs.ActionModule):
    """The action, whose agents answer at once."""


Shows = Callable[..., dict[str, Any]]


@pytest.fixture
def logs(run: Run, queue: QueueStore) -> Iterator[Shows]:
    """Return what runs the action on a control node that has started the session, with the answers of some agents."""
    queue.save(queued(9, id=SESSION_ID, name="train-llm", state="RUNNING", plan=MADE))

    def show(
        args: dict[str, Any],
        variables: dict[str, Any] | None = None,
        *,
        check_mode: bool = False,
        **answers: Answer | list[Answer],
    ) -> dict[str, Any]:
        def answer(asked: Asked) -> Answer:
            own: Answer = {"parts": [logged(MADE, asked.host)], "error": None} if asked.host in MADE.agents else NOTHING
            known = answers.get(asked.host, own)
            return known.pop(0) if isinstance(known, list) else known

        ActionModule.answer = staticmethod(answer)
        return run(ActionModule, args, variables or {}, check_mode=check_mode)

    yield show
    ActionModule.hidden = ()


def asked() -> list[Asked]:
    return ActionModule.hosts.asked


def test_logs_are_returned_in_rank_order(logs: Shows, printed: list[str]) -> None:
    result = logs({"name": "train-llm", "lines": 7})
    assert (result["changed"], result["session"]) == (False, {"id": SESSION_ID, "name": "train-llm"})
    read = [(kernel["hostname"], kernel["agent"], kernel["log"]) for kernel in result["kernels"]]
    assert read == [("main1", "agent1", ["I am main1"]), ("sub1", "agent2", ["I am sub1"])]
    assert (result["unavailable"], "failed" in result, printed) == ({}, False, [])
    request = {"session_id": SESSION_ID, "kernel": "", "lines": 7}
    assert asked() == [Asked("logs", f"agent{number}", request, SECONDS) for number in (1, 2, 3)]


def test_logs_are_shown_and_written(logs: Shows, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "logs.json"
    result = logs({"name": "train-llm", "format": "text", "path": str(path)})
    assert ("kernels" in result, result["changed"]) == (False, False)
    written = json.loads(path.read_text())
    assert (written["session"]["id"], written["agents"], written["error"]) == (SESSION_ID, {}, None)
    assert [kernel["log"] for kernel in written["kernels"]] == [["I am main1"], ["I am sub1"]]
    assert printed == ["== main1 on agent1: running ==", "I am main1", "== sub1 on agent2: running ==", "I am sub1"]


def test_what_is_not_given_is_a_variable(logs: Shows, tmp_path: Path) -> None:
    path = tmp_path / "logs.json"
    variables = {
        "session_name": "train-llm",
        "session_kernel": "sub1",
        "session_logs_lines": "5",
        "session_logs_path": str(path),
    }
    assert [kernel["hostname"] for kernel in logs({}, variables)["kernels"]] == ["sub1"]
    assert (asked()[0].options["lines"], path.exists()) == (5, True)
    assert [kernel["hostname"] for kernel in logs({"kernel": "main1"}, variables)["kernels"]] == ["main1"]
    given = tmp_path / "request.json"
    given.write_text(json.dumps({"session_id": SESSION_ID, "session_logs_lines": 3}))
    logs({}, {"session_request_path": str(given)})
    assert (asked()[0].options["session_id"], asked()[0].options["lines"]) == (SESSION_ID, 3)


def test_the_queue_is_that_of_the_task(logs: Shows, tmp_path: Path) -> None:
    failed = logs({"name": "train-llm", "queue_path": str(tmp_path / "other")})
    assert "no record of the session 'train-llm'" in failed["msg"]
    assert asked()[0].options["session_id"] == ""


def test_check_mode_shows_and_writes_nothing(logs: Shows, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "logs.json"
    logs({"name": "train-llm", "format": "text", "path": str(path)}, check_mode=True)
    assert (printed[-1], path.exists()) == ("I am sub1", False)


@pytest.mark.parametrize(
    ("answer", "problem", "reason"),
    [
        (Failure("Failed to\nconnect.", unreachable=True), "unreachable", "Failed to connect"),
        (Failure("it did not answer within 330 seconds"), "unusable", "it did not answer within 330 seconds"),
        ({"parts": [], "error": "the engine does not answer."}, "unusable", "the engine does not answer"),
        (None, "hidden", "hidden by --limit"),
    ],
    ids=["unreachable", "late", "error", "hidden"],
)
def test_available_logs_are_shown_before_an_unreachable_agent_fails(
    logs: Shows, printed: list[str], tmp_path: Path, answer: Answer | None, problem: str, reason: str
) -> None:
    path = tmp_path / "logs.json"
    ActionModule.hidden = () if answer else ("agent2",)
    args = {"name": "train-llm", "path": str(path), "follow": True}
    failed = logs({**args, "format": "text"}, agent2=answer or NOTHING)
    assert (failed["failed"], failed["changed"], failed["unavailable"]) == (
        True,
        False,
        {"agent2": {"problem": problem, "reason": reason}},
    )
    assert failed["msg"] == f"not all logs of the session 'train-llm' could be read: agent2 is unavailable: {reason}."
    assert printed == [
        "== main1 on agent1: running ==",
        "I am main1",
        "== sub1 on agent2: unknown ==",
        f"== sub1: agent2 is unavailable: {reason} ==",
    ]
    assert json.loads(path.read_text())["agents"] == {"agent2": reason}
    returned = logs(args, agent2=answer or NOTHING)
    assert [kernel["status"] for kernel in returned["kernels"]] == ["running", "unknown"]
    assert {request.seconds for request in asked()} == {SECONDS}


def test_an_agent_without_a_container_of_the_session_does_not_matter(logs: Shows) -> None:
    result = logs({"name": "train-llm"}, agent3=GONE)
    assert ("failed" in result, result["unavailable"]) == (False, {})


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({"name": "ghost"}, UNKNOWN),
        ({"name": "session-1"}, "the session 'session-1' is PENDING: no agent holds it."),
        (
            {"name": "session-2"},
            "the session 'session-2' is TERMINATED: it was ended by alice; no agent has kept its output.",
        ),
    ],
    ids=["unknown", "waiting", "over"],
)
def test_unknown_session_fails(
    logs: Shows, queue: QueueStore, printed: list[str], tmp_path: Path, args: dict[str, str], sentence: str
) -> None:
    queue.save(queued(1))
    ended = record(status="TERMINATED", reason="it was ended by alice")
    queue.save(queued(2, state="TERMINATED", spec=None, record=ended))
    path = tmp_path / "logs.json"
    failed = logs({**args, "format": "text", "path": str(path)}, agent1=NOTHING, agent2=NOTHING)
    assert (failed["failed"], failed["msg"], printed) == (True, sentence, [])
    assert json.loads(path.read_text())["error"] == sentence


def test_unknown_container_is_rejected(logs: Shows, printed: list[str]) -> None:
    failed = logs({"name": "train-llm", "kernel": "sub9", "format": "text"})
    assert failed["msg"] == "session_kernel: 'sub9' is not a container of 'train-llm'; it has main1, sub1."
    assert printed == []


@pytest.mark.parametrize(
    ("args", "variables", "message"),
    [
        ({}, {}, "session_name or session_id is required."),
        ({"name": "train-llm", "lines": 0}, {}, "lines: 0 must be a whole number from 1 to 100000."),
        ({"name": "train-llm"}, {"session_nmae": "x"}, "session_nmae is not an option of a session; did you mean"),
    ],
)
def test_a_request_that_is_not_valid_is_refused_before_an_agent_is_asked(
    logs: Shows, args: dict[str, Any], variables: dict[str, Any], message: str
) -> None:
    logs({"name": "train-llm"})
    before = ActionModule.hosts
    failed = logs(args, variables)
    assert (failed["failed"], failed["refused"], failed["msg"].startswith(message)) == (True, True, True)
    assert ActionModule.hosts is before


@pytest.mark.parametrize(
    ("args", "variables", "message"),
    [
        ({"nmae": "x"}, {}, "nmae. Supported parameters include"),
        ({"format": "table"}, {}, "value of format must be one of: text"),
        ({"name": "train-llm"}, {"ansible_play_hosts_all": ["agent1", "agent2"]}, "set run_once: true, or move it"),
    ],
)
def test_what_cannot_be_meant_is_an_error(
    logs: Shows, args: dict[str, Any], variables: dict[str, Any], message: str
) -> None:
    with pytest.raises(AnsibleActionFail, match=message):
        logs(args, variables)


def test_file_has_the_lines_of_a_container_as_they_are_and_the_terminal_does_not(
    logs: Shows, printed: list[str], tmp_path: Path
) -> None:
    path, line = tmp_path / "logs.json", "\x1b]0;owned\x07\u202e\x9b31m"
    part = logged(MADE, "agent1")
    part["logs"]["main1"]["log"] = json.dumps([line])
    answer = {"parts": [part], "error": None}
    logs({"name": "train-llm", "path": str(path), "format": "text"}, agent1=answer)
    assert json.loads(path.read_text())["kernels"][0]["log"] == [line]
    shown = "\\x1b]0;owned\\x07\\u202e\\x9b31m"
    assert printed[1] == shown
    assert logs({"name": "train-llm"}, agent1=answer)["kernels"][0]["log"] == [shown]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# ---- following


BATCH = plan({"agent1": 1, "agent2": 1}, command="python train.py")
FOLLOW: dict[str, Any] = {"id": SESSION_ID, "lines": 9, "format": "text", "follow": True}


@pytest.fixture
def batch(queue: QueueStore, logs: Shows, monkeypatch: pytest.MonkeyPatch) -> Shows:
    """Return what follows a session with a command, at once."""
    monkeypatch.setattr(following, "PAUSE", 0)
    queue.save(queued(9, id=SESSION_ID, name="train-llm", state="RUNNING", plan=BATCH))
    return logs


def said(*lines: str, **changes: Any) -> dict[str, Any]:
    """Return the answer of main1's agent, in which main1 has printed lines."""
    states = {"main1": {"status": changes.pop("status", "running"), "image_digest": None}}
    return {"parts": [follow.part(*lines, of=BATCH, containers=states, **changes)], "error": None}


def sub(*lines: str) -> dict[str, Any]:
    """Return the answer of the other agent, in which sub1 has printed lines."""
    part = follow.part(*lines, of=BATCH, containers={"sub1": {"status": "running", "image_digest": None}})
    return {"parts": [{**part, "logs": {"sub1": part["logs"]["main1"]}}], "error": None}


def test_following_shows_what_is_new_until_the_command_ends(batch: Shows, printed: list[str]) -> None:
    main = [said("01 one"), said("01 one", "02 two"), said("03 three\x1b\nthere", status="exited")]
    other = [sub(), sub("02 zwei"), sub("02 zwei"), sub("04 vier")]
    result = batch(FOLLOW, agent1=main, agent2=other)
    assert "failed" not in result
    lines = [line.rpartition(" ")[2] for line in printed if not line.startswith("==")]
    assert lines == ["one", "two", "zwei", r"three\x1b\nthere", "vier"]
    assert printed[3].startswith("main1: 2026")
    # The agent of sub1 is asked once more after the end of main1.
    later = [(request.host, request.options["since"], request.seconds) for request in asked() if "since" in request[2]]
    assert [host for host, _since, _seconds in later] == ["agent1", "agent2", "agent1", "agent2", "agent2"]
    assert later[2][1:] == ({"main1": 1772333942}, FOLLOW_SECONDS)
    assert {request.options["session_id"] for request in asked()} == {SESSION_ID}


def test_a_session_that_is_gone_is_not_followed(batch: Shows) -> None:
    result = batch(FOLLOW, agent1=[said("01 one"), NOTHING], agent2=[sub(), NOTHING])
    assert ("failed" in result, len(asked())) == (False, 5)


@pytest.mark.parametrize("answer", [GONE, Failure("it hangs"), {"parts": [], "error": "it hangs."}])
def test_an_agent_that_is_lost_fails_the_task_after_the_others_have_ended(
    batch: Shows, printed: list[str], answer: Answer
) -> None:
    main = [said("01 one"), said("02 two"), said("03 three", status="exited")]
    failed = batch(FOLLOW, agent1=main, agent2=[sub(), answer])
    reason = "no route to host" if answer == GONE else "it hangs"
    assert failed["msg"] == (
        f"the logs of the session 'train-llm' were not followed to their end: agent2 is unavailable: {reason}."
    )
    assert (failed["failed"], failed["unavailable"]["agent2"]["reason"]) == (True, reason)
    assert printed[-1].endswith("three")


def test_only_the_agent_of_a_container_is_followed(batch: Shows) -> None:
    batch({**FOLLOW, "kernel": "sub1"}, agent1=said("01 one"), agent2=[sub(), sub("02 zwei"), NOTHING])
    assert [request.host for request in asked()][3:] == ["agent2", "agent2"]
