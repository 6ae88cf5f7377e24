"""The record of a session is written, and people are told how it ended."""

from __future__ import annotations

import dataclasses
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action.session_record import ActionModule
from tests.unit.builders import plan, spec
from tests.unit.plugins.action.conftest import Run

MADE = plan({"agent1": 1, "agent2": 1})
STATES = {
    "agent1": {"main1": {"status": "running", "image_digest": "sha256:1"}},
    "agent2": {"sub1": {"status": "running", "image_digest": "sha256:2"}},
}
PROVEN: dict[str, Any] = {
    "hostvars": {name: {"__session_check": {"containers": states}} for name, states in STATES.items()}
}


def failed(**said: str | None) -> dict[str, Any]:
    """Return the variables of a run in which agents failed with these messages, and all rolled back."""
    rolled_back = {"__session_rollback": {"changed": True}}
    failures = {name: {"ansible_failed_result": {"msg": msg}} if msg else {} for name, msg in said.items()}
    return {"hostvars": {name: {**failure, **rolled_back} for name, failure in failures.items()}}


def test_a_running_session_is_told_with_where_its_containers_are(run: Run, said: list[str]) -> None:
    result = run(ActionModule, {"plan": MADE.to_dict(), "status": "RUNNING"}, PROVEN)
    assert [one["image_digest"] for one in result["record"]["kernels"]] == ["sha256:1", "sha256:2"]
    assert said == [
        "Session train-llm is RUNNING.",
        f"  main1    agent1           {MADE.kernels[0].address}",
        f"  sub1     agent2           {MADE.kernels[1].address}",
    ]


@pytest.mark.usefixtures("said")
def test_a_record_is_written_for_all_to_read_and_that_is_no_change(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    args = {"plan": MADE.to_dict(), "status": "RUNNING", "path": str(path)}
    result = run(ActionModule, args, PROVEN)
    assert json.loads(path.read_text()) == result["record"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert result["changed"] is False


def test_check_mode_writes_no_record_and_claims_nothing(run: Run, said: list[str], tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    untouched: dict[str, Any] = {"hostvars": {"agent1": {}, "agent2": {}}}
    run(ActionModule, {"plan": MADE.to_dict(), "status": "RUNNING", "path": str(path)}, untouched, check_mode=True)
    assert not path.exists()
    assert said == ["Session train-llm was not touched: this is check mode."]


def test_a_session_that_waits_is_told_with_its_reason(run: Run, said: list[str], tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    pending = {"reason": "no room for 1 of 4 containers", "shortfall": {"cpu": 1}}
    args = {
        "name": "train-llm",
        "spec": dataclasses.asdict(spec()),
        "status": "PENDING",
        "pending": pending,
        "path": str(path),
    }
    run(ActionModule, args, {"hostvars": {}})
    assert said == ["Session train-llm is PENDING.", "  no room for 1 of 4 containers"]
    assert json.loads(path.read_text())["pending"] == pending


def test_a_session_that_was_never_there_is_terminated(run: Run, said: list[str]) -> None:
    record = run(ActionModule, {"name": "ghost", "status": "TERMINATED"}, {"hostvars": {}})["record"]
    assert (record["status"], record["kernels"]) == ("TERMINATED", [])
    assert said == ["Session ghost is TERMINATED."]


@pytest.mark.parametrize(
    ("said_by", "reason"),
    [
        ({"agent1": "no room.", "agent2": None}, "agent1: no room."),
        ({"agent1": "no room.", "agent2": "no image."}, "agent1: no room; agent2: no image."),
        ({"agent1": None, "agent2": None}, "an agent became unreachable while its part was made."),
    ],
    ids=["one agent", "two agents", "no word"],
)
def test_a_failure_is_recorded_and_fails(run: Run, tmp_path: Path, said_by: dict[str, str | None], reason: str) -> None:
    path = tmp_path / "record.json"
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, {"plan": MADE.to_dict(), "status": "ERROR", "path": str(path)}, failed(**said_by))
    assert str(refused.value) == f"the session 'train-llm' was not created: {reason}"
    record = json.loads(path.read_text())
    assert (record["status"], record["error"]) == ("ERROR", reason)


@pytest.mark.parametrize("rollback", [None, {"failed": True, "msg": "engine down"}, {"unreachable": True}])
def test_an_agent_that_could_not_roll_back_is_named_with_what_to_do(run: Run, rollback: dict[str, Any] | None) -> None:
    variables = failed(agent1="no room.", agent2=None)
    variables["hostvars"]["agent2"] = {"__session_rollback": rollback} if rollback else {}
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, {"plan": MADE.to_dict(), "status": "ERROR"}, variables)
    assert str(refused.value) == (
        "the session 'train-llm' was not created: agent1: no room; agent2 may still hold a part of it:"
        f" run backendai.cluster.terminate_session -e session_id={MADE.id} once it can be used again."
    )


def test_a_repair_that_fails_says_that_the_session_still_runs(run: Run) -> None:
    args = {"plan": MADE.to_dict(), "status": "ERROR", "known": True}
    with pytest.raises(AnsibleActionFail) as refused:
        run(ActionModule, args, failed(agent1="no image.", agent2=None))
    assert str(refused.value) == (
        "the session 'train-llm' was not repaired, and what ran before still runs: agent1: no image."
    )
