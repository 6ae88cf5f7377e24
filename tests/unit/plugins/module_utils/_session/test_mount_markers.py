"""Markers in mounts; the real scripts run in folders of this host."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.action.session_verify import MARKER_SECONDS
from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import ClusterError
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._session import mount_markers
from ansible_collections.backendai.cluster.plugins.module_utils._session.mount_markers import (
    create_marker,
    find_markers,
    remove_marker,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.ownership import OwnContainers
from tests.unit.builders import own_labels, plan
from tests.unit.fake_docker import FakeDocker

MARK = "2c4e0d7a"


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run the commands for containers on this host; return the containers in order."""
    ran: list[str] = []

    def run_here(_client: Any, container: str, command: list[str], seconds: int) -> str:
        assert seconds < MARKER_SECONDS, "the command ends before the request"
        ran.append(container)
        words = [word for word in command if word != mount_markers.BUSYBOX]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout

    monkeypatch.setattr(mount_markers, "run_as_work", run_here)
    return ran


@pytest.fixture
def session_plan(tmp_path: Path) -> SessionPlan:
    """Return a session with three mounts: writable, read-only, and with a space in its name."""
    targets = [tmp_path / "data", tmp_path / "read only", tmp_path / "more data"]
    for target in targets:
        target.mkdir()
    mounts = [{"source": "/mnt", "target": str(target), "read_only": "read" in target.name} for target in targets]
    return plan({"agent1": 2, "agent2": 1}, mounts=mounts)


def runs(engine: FakeDocker, **states: str) -> None:
    for hostname, state in states.items():
        bears = own_labels(hostname)
        engine.made.append(
            {"Id": f"id-{hostname}", "Names": [f"/backendai-train-llm-{hostname}"], "Labels": bears, "State": state}
        )


def own(engine: FakeDocker) -> OwnContainers:
    return {entry["Labels"][labels.HOSTNAME]: entry for entry in engine.made}


def marked(tmp_path: Path) -> list[str]:
    return sorted(path.parent.name for path in tmp_path.rglob(f"*{MARK}"))


def test_marker_is_created_in_writable_mounts_and_removed(
    engine: Any, session_plan: SessionPlan, tmp_path: Path, commands: list[str]
) -> None:
    runs(engine, main1="running")
    data, more = tmp_path / "data", tmp_path / "more data"
    assert create_marker(engine, own(engine), session_plan, MARK) == [str(data), str(more)]
    assert marked(tmp_path) == ["data", "more data"]
    assert (tmp_path / "data" / f".backendai-verify-{MARK}").read_text() == ""
    assert remove_marker(engine, own(engine), session_plan, MARK) == []
    assert marked(tmp_path) == []
    assert commands == ["id-main1"] * 2


def test_a_container_that_only_has_the_name_of_main1_is_not_asked(
    engine: Any, session_plan: SessionPlan, commands: list[str]
) -> None:
    runs(engine, main1="running")
    for operation in (create_marker, remove_marker):
        with pytest.raises(ClusterError) as refused:
            operation(engine, {}, session_plan, MARK)
        assert str(refused.value) == "main1 of train-llm is not on agent1: run repair_session"
    assert commands == []


def test_marker_replaces_no_file_and_failures_are_independent(
    engine: Any, session_plan: SessionPlan, tmp_path: Path
) -> None:
    runs(engine, main1="running")
    mine = tmp_path / "data" / f".backendai-verify-{MARK}"
    mine.write_text("mine")
    assert create_marker(engine, own(engine), session_plan, MARK) == [str(tmp_path / "more data")]
    assert mine.read_text() == "mine"


def test_marker_that_cannot_be_removed_is_named(engine: Any, session_plan: SessionPlan, tmp_path: Path) -> None:
    runs(engine, main1="running")
    (tmp_path / "data" / f".backendai-verify-{MARK}").mkdir()
    assert remove_marker(engine, own(engine), session_plan, MARK) == [str(tmp_path / "data")]


def test_each_running_container_reports_each_mount(
    engine: Any, session_plan: SessionPlan, tmp_path: Path, commands: list[str]
) -> None:
    runs(engine, main1="running", sub1="exited")
    create_marker(engine, own(engine), session_plan, MARK)
    observed = find_markers(engine, own(engine), session_plan, MARK)
    data, read_only = observed["main1"][str(tmp_path / "data")], observed["main1"][str(tmp_path / "read only")]
    assert list(observed) == ["main1"]
    assert commands == ["id-main1", "id-main1"]
    assert (data["marker"], read_only["marker"]) == (True, False)
    status = (tmp_path / "data").stat()
    assert data["folder"] == f"{status.st_dev}:{status.st_ino}"


def test_names_in_a_folder_are_compared_without_markers(engine: Any, session_plan: SessionPlan, tmp_path: Path) -> None:
    runs(engine, main1="running")
    target = str(tmp_path / "data")
    empty = find_markers(engine, own(engine), session_plan, MARK)["main1"][target]["names"]
    create_marker(engine, own(engine), session_plan, MARK)
    assert find_markers(engine, own(engine), session_plan, MARK)["main1"][target]["names"] == empty
    (tmp_path / "data" / "a").touch()
    assert find_markers(engine, own(engine), session_plan, MARK)["main1"][target]["names"] not in (empty, "-")


def test_missing_folder_is_unreadable(engine: Any, session_plan: SessionPlan, tmp_path: Path) -> None:
    runs(engine, main1="running")
    (tmp_path / "data").rmdir()
    assert find_markers(engine, own(engine), session_plan, MARK)["main1"][str(tmp_path / "data")] == {
        "marker": False,
        "folder": "-",
        "names": "-",
    }


def test_container_without_output_reports_nothing(
    engine: Any, session_plan: SessionPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs(engine, main1="running")
    monkeypatch.setattr(mount_markers, "run_as_work", lambda *_command: "")
    assert find_markers(engine, own(engine), session_plan, MARK) == {"main1": {}}
    assert create_marker(engine, own(engine), session_plan, MARK) == []


@pytest.mark.parametrize("line", ["yes", "", "no 64769:2 1234 and more", "\\x1b[2J"])
def test_lines_of_a_disturbed_command_are_no_findings_of_equal_data(
    engine: Any, session_plan: SessionPlan, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    runs(engine, main1="running")
    monkeypatch.setattr(mount_markers, "run_as_work", lambda *_command: f"{line}\n")
    ((seen,),) = (observed.values() for observed in find_markers(engine, own(engine), session_plan, MARK).values())
    assert (seen["marker"], sorted(seen)) == (line == "yes", ["folder", "marker", "names"])
