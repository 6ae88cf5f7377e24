"""What a run that creates a session reports at its end: its output, and whether it has failed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.module_utils._model.printable import printable
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_steps import CLAIM, Start
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.store import QueueStore
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import (
    ended_record,
    session_record,
    unplanned_record,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.create import Ended
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.create import report as report_on
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.outcome import Outcome
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.session_run import SessionRun
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.settling import Settled
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.site import Site
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_action import SessionAction, TaskEdge
from tests.unit.builders import NOW, SESSION_ID, plan, requested, spec
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.stages import request_of, run_options

MADE = plan({"agent1": 1}, command="python train.py")
RUNS = session_record(MADE, "RUNNING")
WAITS = {
    **unplanned_record(spec(), "train-llm", "PENDING", SESSION_ID),
    "pending": {"reason": "no room", "shortfall": {"cpu": 1}},
}
FAILED = session_record(MADE, "ERROR", error="agent1: no image.")
Later = Sequence[dict[str, Any]]
"""The records of the sessions that the run has started after its own."""

LINE = f"  main1    agent1           {MADE.kernels[0].address or '-'}"


def finished(exit_code: int | None) -> dict[str, Any]:
    return ended_record(RUNS, "TERMINATED", f"the command ended with exit code {exit_code}", exit_code, NOW, NOW)


def history(queue: QueueStore, record: dict[str, Any], state: str = "TERMINATED") -> None:
    """Save that the session has ended with this record."""
    queue.save(requested(id=SESSION_ID, name="train-llm", state=state, spec=None, record=record))


class Reporting(SessionAction):
    """An action that only reports."""

    def run(self, _tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        variables, args = task_vars or {}, self._task.args
        options = run_options(record_path=args.get("path", ""), access_path=args.get("access_path", ""))
        request = dataclasses.replace(request_of({"agents": []}), run=options)
        site = Site(request, self.queue({}), variables["hostvars"], check_mode=self._task.check_mode)
        hosts: Any = SimpleNamespace(links=args["links"])
        run = SessionRun(site, hosts, TaskEdge(self, site, variables), Outcome(self.tell))
        created = report_on(run, args["settled"], args["later"], args["ended"])
        if created.error:
            raise AnsibleActionFail(printable(created.error))
        return {"record": created.record, "access": created.links}


def report(
    run: Run,
    record: dict[str, Any],
    later: Later = (),
    *,
    error: str | None = None,
    printed: tuple[str, ...] = (),
    waited: bool = False,
    log: Sequence[str] = (),
    check_mode: bool = False,
    links: Mapping[str, Any] | None = None,
    start: Start | None = None,
    **args: Any,
) -> dict[str, Any]:
    """Return the report on a session with this result, and with sessions that were started later."""
    settled = Settled(record, error, printed, start)
    passed = [Settled(other, other["error"]) for other in later]
    known = {"settled": settled, "later": passed, "ended": Ended(None, log) if waited else None, "links": links or {}}
    return run(Reporting, {**known, **args}, {}, check_mode=check_mode)


def test_running_session_is_shown_without_writing_its_record(run: Run, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    result = report(run, RUNS, path=str(path))
    assert printed == ["Session train-llm is RUNNING.", LINE]
    assert (result["record"], path.exists()) == (RUNS, False)


@pytest.mark.parametrize("error", ["", None])
def test_pending_session_does_not_fail(run: Run, printed: list[str], error: str | None) -> None:
    report(run, WAITS, error=error)
    assert printed == ["Session train-llm is PENDING.", "  no room"]


def test_session_started_from_the_queue_is_shown_as_running(run: Run, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    other = {**RUNS, "id": "other", "name": "other"}
    result = report(run, WAITS, [other, RUNS], path=str(path))
    assert printed == ["Session train-llm is RUNNING.", LINE]
    assert (json.loads(path.read_text()), result["record"]) == (RUNS, RUNS)


def test_session_started_by_a_retry_does_not_fail(run: Run, printed: list[str]) -> None:
    assert report(run, WAITS, [RUNS], error="agent1: no image.")["record"] == RUNS
    assert printed == ["Session train-llm is RUNNING.", LINE]


def test_failed_start_of_a_pending_session_fails(run: Run, printed: list[str]) -> None:
    with pytest.raises(AnsibleActionFail, match=r"^agent1: no image\.$"):
        report(run, WAITS, error="agent1: no image.")
    assert printed == ["Session train-llm is PENDING.", "  no room"]


def test_starts_of_others_do_not_change_the_record(run: Run, printed: list[str]) -> None:
    report(run, WAITS, [{**RUNS, "id": "other", "name": "other"}])
    assert printed == ["Session train-llm is PENDING.", "  no room"]


@pytest.mark.parametrize(("later", "reason"), [([], "behind others"), ([WAITS], "no room")], ids=["waits", "requeued"])
def test_pending_session_is_shown_with_the_reason_of_the_last_pass(
    run: Run, queue: QueueStore, printed: list[str], tmp_path: Path, later: Later, reason: str
) -> None:
    found = {**WAITS, "pending": {"reason": "behind others", "shortfall": {"cpu": 2}}}
    queue.save(requested(id=SESSION_ID, name="train-llm", updated_at=NOW, record=found))
    path = tmp_path / "record.json"
    result = report(run, {**WAITS, "queue_position": 3}, later, path=str(path))
    assert printed == ["Session train-llm is PENDING.", f"  {reason}"]
    assert json.loads(path.read_text()) == result["record"]
    assert result["record"]["queue_position"] == (None if later else 3)


@pytest.mark.parametrize(
    ("record", "later", "error"),
    [(FAILED, [], "agent1: no image."), (FAILED, [], None), (WAITS, [FAILED], None)],
    ids=["previous", "recorded", "started meanwhile"],
)
def test_failed_session_is_shown_and_fails(
    run: Run, printed: list[str], record: dict[str, Any], later: Later, error: str | None
) -> None:
    with pytest.raises(AnsibleActionFail) as refused:
        report(run, record, later, error=error)
    assert (str(refused.value), printed) == ("agent1: no image.", ["Session train-llm is ERROR."])


@pytest.mark.parametrize("state", ["TERMINATING", "TERMINATED"])
def test_successful_command_is_shown_and_recorded(
    run: Run, queue: QueueStore, printed: list[str], tmp_path: Path, state: str
) -> None:
    history(queue, finished(0), state)
    path = tmp_path / "record.json"
    result = report(run, RUNS, waited=True, path=str(path))
    assert printed == ["Session train-llm is TERMINATED."]
    assert json.loads(path.read_text()) == result["record"] == finished(0)


@pytest.mark.parametrize("exit_code", [3, 137, None])
def test_failed_command_fails(run: Run, queue: QueueStore, printed: list[str], exit_code: int | None) -> None:
    history(queue, finished(exit_code))
    with pytest.raises(AnsibleActionFail) as refused:
        report(run, RUNS, waited=True)
    assert str(refused.value) == f"the session 'train-llm' has ended: the command ended with exit code {exit_code}."
    assert printed == ["Session train-llm is TERMINATED."]


@pytest.mark.parametrize("log", [["== main1 on agent1: exited with code 3 ==", "out of memory"], []])
def test_end_of_the_log_of_a_failed_command_is_shown(
    run: Run, queue: QueueStore, printed: list[str], log: list[str]
) -> None:
    history(queue, finished(3))
    with pytest.raises(AnsibleActionFail, match=r"exit code 3\.$"):
        report(run, RUNS, waited=True, log=log)
    assert printed == ["Session train-llm is TERMINATED.", *log]


@pytest.mark.parametrize("waited", [True, False])
def test_end_is_looked_up_only_with_wait(run: Run, queue: QueueStore, printed: list[str], waited: bool) -> None:
    history(queue, finished(0))
    report(run, RUNS, waited=waited)
    assert printed[0] == f"Session train-llm is {'TERMINATED' if waited else 'RUNNING'}."


def test_unknown_end_fails_with_wait(run: Run, queue: QueueStore, printed: list[str]) -> None:
    queue.save(requested(id=SESSION_ID, name="train-llm", state="CREATING", spec=None))
    with pytest.raises(AnsibleActionFail) as refused:
        report(run, RUNS, waited=True)
    assert str(refused.value) == "the session 'train-llm' is still running: its agent became unreachable."
    assert printed == ["Session train-llm is RUNNING.", LINE]


def test_check_mode_claims_nothing_and_writes_nothing(run: Run, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    report(run, WAITS, [RUNS], check_mode=True, path=str(path))
    assert (printed, path.exists()) == (["Session train-llm was not touched: this is check mode."], False)


APP = {"name": "jupyter", "url": "https://gateway1/s/train-llm/jupyter/"}
LINK = {"id": SESSION_ID, "name": "train-llm", "ssh": {"host": "gateway1", "port": 31001}, "apps": [APP]}
ACCESS = [{"gateway": "gateway1", "ssh": LINK["ssh"], "apps": [APP]}]
PRINTED = [
    "Put this into ~/.ssh/config for `ssh train-llm`, through gateway1:",
    "  Host train-llm",
    "    HostName gateway1",
    "    Port 31001",
    "    User work",
    "Its apps require a token:",
    "  jupyter          https://gateway1/s/train-llm/jupyter/",
    (
        "Create a token with ansible-playbook -i INVENTORY backendai.cluster.session_token"
        " -e session_name=train-llm -e session_token_path=FILE"
    ),
]


@pytest.mark.parametrize(("record", "later"), [(RUNS, []), (WAITS, [RUNS])], ids=["at once", "started meanwhile"])
def test_access_to_a_running_session_is_shown_and_written(
    run: Run, printed: list[str], tmp_path: Path, record: dict[str, Any], later: Later
) -> None:
    path = tmp_path / "access.json"
    result = report(run, record, later, links={"gateway1": [LINK], "gateway2": []}, access_path=str(path))
    assert printed == ["Session train-llm is RUNNING.", LINE, *PRINTED]
    assert json.loads(path.read_text()) == result["access"] == ACCESS
    assert result["record"] == RUNS


KEYS = {"main1": {"user": "ssh-ed25519 USER-main1", "host": "ssh-ed25519 HOST-main1"}}


@pytest.mark.parametrize(
    ("known_before", "created", "shown"),
    [({}, {}, False), (KEYS, {}, True), ({}, KEYS, True)],
    ids=["unknown", "known before", "made by this run"],
)
def test_host_key_of_main1_is_shown_if_known(
    run: Run, printed: list[str], known_before: dict[str, Any], created: dict[str, Any], shown: bool
) -> None:
    decided = {"id": SESSION_ID, "nonce": "nonce", "agents": ["agent1"], "public_keys": known_before}
    start = Start(decided).after(CLAIM, {"agent1": {"public_keys": created}})
    report(run, RUNS, links={"gateway1": [LINK]}, start=start)
    lines = ["and this into ~/.ssh/known_hosts:", "  [gateway1]:31001 ssh-ed25519 HOST-main1"] if shown else []
    assert printed[2:] == [*PRINTED[:5], *lines, *PRINTED[5:]]


def test_gateway_without_a_result_has_no_access(run: Run, printed: list[str]) -> None:
    report(run, RUNS, links={"gateway1": []})
    assert printed == ["Session train-llm is RUNNING.", LINE]


@pytest.mark.parametrize("links", [None, {}, {"gateway1": []}, {"gateway1": [{**LINK, "id": "other"}]}])
def test_no_access_is_not_shown(run: Run, printed: list[str], tmp_path: Path, links: dict[str, Any] | None) -> None:
    path = tmp_path / "access.json"
    result = report(run, RUNS, links=links, access_path=str(path))
    assert printed == ["Session train-llm is RUNNING.", LINE]
    assert json.loads(path.read_text()) == result["access"] == []


def test_ended_session_has_no_access(run: Run, queue: QueueStore, printed: list[str]) -> None:
    history(queue, finished(0))
    result = report(run, RUNS, waited=True, links={"gateway1": [LINK]})
    assert (printed, result["record"]) == (["Session train-llm is TERMINATED."], finished(0))


def test_failed_session_has_no_access(run: Run, printed: list[str]) -> None:
    with pytest.raises(AnsibleActionFail, match=r"^agent1: no image\.$"):
        report(run, FAILED, links={"gateway1": [LINK]})
    assert printed == ["Session train-llm is ERROR."]


def test_lines_of_a_failed_container_are_shown_at_the_end_and_safe_to_print(run: Run, printed: list[str]) -> None:
    with pytest.raises(AnsibleActionFail, match=r"^no: \\x1b\[2J\.$"):
        report(run, FAILED, error="no: \x1b[2J.", printed=("agent1: \x1b]0;owned\x07",))
    assert printed[-1] == "  agent1: \\x1b]0;owned\\x07"
