"""The action session_verify: a table, what is returned, a file, and the marker files in mounts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action import session_verify
from ansible_collections.backendai.cluster.plugins.action.session_verify import MARKER_SECONDS, SECONDS
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import Answer, Failure
from tests.unit.builders import SESSION_ID, plan, queued
from tests.unit.plugins.action.asked_hosts import GONE, Asked
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.looks import LookedAt
from tests.unit.plugins.plugin_utils._report.test_verification import part

MADE = plan({"agent1": 1, "agent2": 1}, mounts=[{"source": "/mnt/data", "target": "/data"}])
PLAIN = plan({"agent1": 1, "agent2": 1})
CONTAINERS = {"agent1": "main1", "agent2": "sub1"}
NOTHING: dict[str, Any] = {"parts": [], "error": None}
SIGHT = {"/data": {"marker": True, "folder": "1:1", "names": "abc"}}
MISSED = {"/data": {"marker": False, "folder": "1:1", "names": "abc"}}
REPAIR = "repair_session, or create_session with the same variables, repairs what differs from the plan."
STEPS = ["create", "find", "find", "remove"]

Verify = Callable[..., dict[str, Any]]


class ActionModule(LookedAt, session_verify.ActionModule):
    """The action, whose agents answer at once."""


def healthy(asked: Asked) -> Answer:
    """Return what an agent of the healthy session answers."""
    if asked.phase == "verify":
        return {"parts": [part(MADE, asked.host)] if asked.host in CONTAINERS else [], "error": None}
    if asked.options["operation"] == "find":
        return {"observed": {CONTAINERS[asked.host]: SIGHT}}
    return {"created": ["/data"]} if asked.options["operation"] == "create" else {"leftover": []}


def key_of(asked: Asked) -> str:
    """Return the name of a request: its host, with the operation of one about marker files."""
    return "_".join(filter(None, [asked.host, asked.options.get("operation")]))


@pytest.fixture
def verify(run: Run, queue: QueueStore) -> Iterator[Verify]:
    """Return what runs the action on a control node that has started the session; some requests have other answers."""
    queue.save(queued(9, id=SESSION_ID, name="train-llm", state="RUNNING", plan=MADE))

    def verifying(
        args: dict[str, Any] | None = None,
        variables: dict[str, Any] | None = None,
        *,
        check_mode: bool = False,
        **answers: Answer | BaseException,
    ) -> dict[str, Any]:
        def answer(asked: Asked) -> Answer:
            known = answers.get(key_of(asked), healthy(asked))
            if isinstance(known, BaseException):
                raise known
            return known

        ActionModule.answer = staticmethod(answer)
        return run(ActionModule, {"name": "train-llm", **(args or {})}, variables or {}, check_mode=check_mode)

    yield verifying
    ActionModule.hidden = ()


def operations() -> list[str]:
    """Return what was asked about marker files, in order."""
    return [asked.options["operation"] for asked in ActionModule.hosts.asked if asked.phase == "marker"]


def test_a_healthy_session_is_returned_as_one(verify: Verify, printed: list[str]) -> None:
    result = verify()
    assert (result["changed"], result["healthy"], result["unavailable"], printed) == (False, True, {}, [])
    assert result["session"] == {"id": SESSION_ID, "name": "train-llm", "status": "RUNNING"}
    assert (len(result["pairs"]), result["drift"], result["mounts"][0]["same"]) == (4, [], True)
    requests = [(asked.host, asked.seconds) for asked in ActionModule.hosts.asked if asked.phase == "verify"]
    assert requests == [("agent1", SECONDS), ("agent2", SECONDS), ("agent3", SECONDS)]
    markers = [asked for asked in ActionModule.hosts.asked if asked.phase == "marker"]
    assert {asked.seconds for asked in markers} == {MARKER_SECONDS}
    assert len({asked.options["marker"] for asked in markers}) == 1
    assert [(asked.options["operation"], asked.host) for asked in markers] == [
        ("create", "agent1"),
        ("find", "agent1"),
        ("find", "agent2"),
        ("remove", "agent1"),
    ]


def test_a_healthy_session_is_shown_and_written(verify: Verify, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    result = verify({"format": "table", "path": str(path)})
    report = json.loads(path.read_text())
    assert (report["healthy"], report["error"], report["agents"], "pairs" in result) == (True, None, {}, False)
    assert printed == [
        "from   main1  sub1",
        "main1  ok     ok",
        "sub1   ok     ok",
        "mount /data: the same in all containers (compared by a marker file of main1)",
        "Session train-llm is healthy.",
    ]


def test_a_session_without_mounts_needs_no_marker(verify: Verify, queue: QueueStore) -> None:
    queue.save(queued(9, id=SESSION_ID, name="train-llm", state="RUNNING", plan=PLAIN))
    answers = {agent: {"parts": [part(PLAIN, agent)], "error": None} for agent in PLAIN.agents}
    assert (verify(**answers)["healthy"], operations()) == (True, [])


def test_what_is_not_given_is_a_variable(verify: Verify, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    variables = {"session_id": SESSION_ID, "session_report_path": str(path)}
    assert verify({"name": None}, variables)["healthy"] is True
    assert path.exists()


def test_check_mode_shows_and_writes_nothing(verify: Verify, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    verify({"format": "table", "path": str(path)}, check_mode=True)
    assert (printed[-1], path.exists()) == ("Session train-llm is healthy.", False)


@pytest.mark.parametrize(
    ("answer", "problem", "reason"),
    [
        (Failure("Failed to\nconnect.", unreachable=True), "unreachable", "Failed to connect"),
        (Failure("boom"), "unusable", "boom"),
        (Failure("it did not answer within 630 seconds"), "unusable", "it did not answer within 630 seconds"),
        ({"parts": [], "error": "the engine does not answer."}, "unusable", "the engine does not answer"),
        (None, "hidden", "hidden by --limit"),
    ],
    ids=["unreachable", "failed", "late", "error", "hidden"],
)
def test_unreachable_agent_is_shown_and_fails(
    verify: Verify, printed: list[str], tmp_path: Path, answer: Answer | None, problem: str, reason: str
) -> None:
    path = tmp_path / "report.json"
    ActionModule.hidden = () if answer else ("agent2",)
    failed = verify({"format": "table", "path": str(path)}, agent2=answer or NOTHING)
    assert f"agent2 is unavailable: {reason}." in printed
    assert failed["unavailable"] == {"agent2": {"problem": problem, "reason": reason}}
    assert "1 unavailable agent, 2 unchecked pairs" in failed["msg"]
    assert (json.loads(path.read_text())["agents"], operations()) == ({"agent2": reason}, ["create", "find", "remove"])
    returned = verify(agent2=answer or NOTHING)
    assert (returned["failed"], returned["healthy"], len(returned["pairs"])) == (True, False, 4)


def test_differing_mounts_fail(verify: Verify, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    failed = verify({"format": "table", "path": str(path)}, agent2_find={"observed": {"sub1": MISSED}})
    assert failed["msg"] == f"the session 'train-llm' is not healthy: 1 mount with differing contents; {REPAIR}"
    assert json.loads(path.read_text())["mounts"][0]["differing"] == ["sub1"]
    assert printed[-1] == "Session train-llm is not healthy."


def test_what_an_agent_says_of_the_containers_of_another_is_not_looked_at(verify: Verify) -> None:
    both = {"observed": {"main1": SIGHT, "sub1": SIGHT}}
    failed = verify(agent1_find=both, agent2_find={"observed": {"main1": MISSED}})
    assert failed["mounts"][0]["unknown"] == ["sub1"]
    held = part(MADE, "agent2")
    lies = [{**pair, "from": "main1", "tcp": False} for pair in held["pairs"]]
    result = verify(agent2={"parts": [{**held, "pairs": [*held["pairs"], *lies]}], "error": None})
    assert result["healthy"] is True


@pytest.mark.parametrize("answer", [GONE, Failure("it hangs"), {"leftover": ["/data"]}])
def test_marker_with_failed_removal_is_reported(verify: Verify, printed: list[str], answer: Answer) -> None:
    failed = verify({"format": "table"}, agent1_remove=answer)
    assert failed["failed"] is True
    assert "mount /data: the marker file could not be removed (compared by a marker file of main1)" in printed


@pytest.mark.parametrize("answer", [GONE, {}, {"created": []}])
def test_without_a_marker_the_names_are_compared(verify: Verify, answer: Answer) -> None:
    result = verify(agent1_create=answer)
    assert (result["mounts"][0]["compared"], result["mounts"][0]["marker_left"]) == ("names", False)
    assert operations() == STEPS


@pytest.mark.parametrize("step", ["agent1_create", "agent2_find"])
def test_marker_is_removed_when_the_run_is_interrupted(verify: Verify, step: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        verify(**{step: KeyboardInterrupt("interrupted by SIGINT")})
    assert (operations()[-1], ActionModule.hosts.given_up) == ("remove", 1)


def test_a_session_whose_main1_is_gone_has_no_marker(verify: Verify) -> None:
    failed = verify(agent1=NOTHING)
    assert operations() == ["find"]
    assert failed["drift"][0] == {
        "agent": "agent1",
        "subject": "session train-llm",
        "actual": None,
        "expected": "held",
    }


def test_missing_session_fails_before_an_agent_is_asked(
    verify: Verify, queue: QueueStore, printed: list[str], tmp_path: Path
) -> None:
    queue.save(queued(1))
    path = tmp_path / "report.json"
    verify()
    before = ActionModule.hosts
    for name, sentence in (
        ("ghost", "this control node has no record of the session 'ghost'."),
        ("session-1", "the session 'session-1' is PENDING: no agent holds it."),
    ):
        failed = verify({"name": name, "format": "table", "path": str(path)})
        assert (failed["failed"], failed["msg"], failed["unavailable"]) == (True, sentence, {})
        assert json.loads(path.read_text())["error"] == sentence
    assert (printed, ActionModule.hosts is before) == ([], True)


def test_a_session_that_no_agent_has_fails(verify: Verify) -> None:
    failed = verify(agent1=NOTHING, agent2=NOTHING)
    assert (failed["msg"], failed["healthy"]) == ("the session 'train-llm' is on no agent.", False)


def test_a_request_that_is_not_valid_is_refused(verify: Verify) -> None:
    failed = verify({"name": None})
    assert (failed["failed"], failed["refused"]) == (True, True)
    assert failed["msg"] == "session_name or session_id is required."
    with pytest.raises(AnsibleActionFail, match=r"kernel\. Supported parameters include"):
        verify({"kernel": "main1"})
    with pytest.raises(AnsibleActionFail, match="set run_once: true, or move it"):
        verify({}, {"ansible_play_hosts_all": ["agent1", "agent2"]})
