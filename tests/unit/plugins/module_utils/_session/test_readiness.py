"""Waiting for containers to become ready."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from docker.errors import NotFound

from ansible_collections.backendai.cluster.plugins.module_utils._docker.logs import LogReadError
from ansible_collections.backendai.cluster.plugins.module_utils._session import readiness
from ansible_collections.backendai.cluster.plugins.module_utils._session.readiness import NotReadyError, await_ready

ME = os.getpid()
PRINTED = ("backendai-a-main1: one", "backendai-a-main1: two")
STARTED = Path(f"/proc/{ME}/stat").read_text().split()[21]


@pytest.fixture(autouse=True)
def container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Fake containers with this process as their first and two log lines; return the marker's path."""
    mark = tmp_path / "ready"
    monkeypatch.setattr(readiness, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(readiness, "pid_of", lambda _client, _name: ME)
    monkeypatch.setattr(readiness, "tail_of", lambda _client, _name, _lines: ["one", "two"])
    return mark


def wait(mark: Path, seconds: float = 0.0) -> None:
    """Wait at most that long for two containers."""
    client: Any = object()
    markers = dict.fromkeys(["backendai-a-main1", "backendai-a-sub1"], mark)
    await_ready(client, markers, time.monotonic() + seconds)


def test_marker_of_this_start_is_sufficient(container: Path) -> None:
    container.write_text(f"{STARTED}\n")
    wait(container)


def test_wait_ends_when_patience_is_over(container: Path) -> None:
    client: Any = object()
    markers = {"backendai-a-main1": container}
    assert await_ready(client, markers, time.monotonic() + 60, 0.01) is False
    container.write_text(STARTED)
    assert await_ready(client, markers, time.monotonic() + 60, 0.01) is True


def test_waiting_for_the_marker_calls_no_engine(container: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slept(_seconds: float) -> None:
        if len(naps) == 3:
            container.write_text(STARTED)
        naps.append(1)

    def looked(_client: object, name: str) -> int:
        looks.append(name)
        return ME

    naps: list[int] = []
    looks: list[str] = []
    monkeypatch.setattr(readiness.time, "sleep", slept)
    monkeypatch.setattr(readiness, "pid_of", looked)
    wait(container, seconds=60)
    assert (len(naps), looks) == (4, ["backendai-a-main1", "backendai-a-sub1"])


def test_container_that_ends_during_the_wait_is_an_error(container: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:

        def slept(_seconds: float) -> None:
            monkeypatch.setitem(pids, "backendai-a-sub1", 0)
            process.kill()
            process.wait()

        pids = {"backendai-a-main1": ME, "backendai-a-sub1": process.pid}
        monkeypatch.setattr(readiness.time, "sleep", slept)
        monkeypatch.setattr(readiness, "pid_of", lambda _client, name: pids[name])
        with pytest.raises(NotReadyError, match=r"^container backendai-a-sub1 ended while it started"):
            wait(container, seconds=60)


def test_ended_container_is_reported_before_slow_ones(container: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = {"backendai-a-main1": ME, "backendai-a-sub1": 0}
    monkeypatch.setattr(readiness, "pid_of", lambda _client, name: pids[name])
    with pytest.raises(NotReadyError, match=r"^container backendai-a-sub1 ended while it started"):
        wait(container, seconds=60)


@pytest.mark.parametrize("mark", ["1", "", "\x00" * 40, STARTED * 9], ids=["other", "empty", "zeros", "longer"])
def test_marker_of_an_earlier_start_is_ignored(container: Path, mark: str) -> None:
    container.write_text(mark)
    with pytest.raises(
        NotReadyError, match=r"^container backendai-a-main1 did not become ready in time; .*session_claim_ttl$"
    ) as raised:
        wait(container)
    assert raised.value.printed == PRINTED


def test_marker_that_is_no_regular_file_is_ignored(container: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(STARTED)
    container.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotReadyError, match="did not become ready"):
        wait(container)
    container.unlink()
    os.mkfifo(container)
    with pytest.raises(NotReadyError, match="did not become ready"):
        wait(container)


def test_missing_container_has_ended(container: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_client: object, _name: str) -> int:
        raise NotFound("No such container")

    monkeypatch.setattr(readiness, "pid_of", missing)
    with pytest.raises(NotReadyError, match=r"^container backendai-a-main1 ended while it started"):
        wait(container, seconds=60)


def test_what_an_ended_container_printed_is_apart_from_the_message(
    container: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "pid_of", lambda _client, _name: 0)
    with pytest.raises(NotReadyError) as raised:
        wait(container, seconds=60)
    assert str(raised.value) == "container backendai-a-main1 ended while it started"
    assert raised.value.printed == PRINTED


def test_unreadable_log_is_said(container: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(_client: object, _name: str, _lines: int) -> list[str]:
        raise LogReadError("its log cannot be read (driver none)")

    monkeypatch.setattr(readiness, "pid_of", lambda _client, _name: 0)
    monkeypatch.setattr(readiness, "tail_of", unreadable)
    with pytest.raises(NotReadyError, match=r"main1 ended while it started$") as raised:
        wait(container)
    assert raised.value.printed == ("backendai-a-main1: its log cannot be read (driver none)",)


def test_container_without_output_has_no_log_tail(container: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "pid_of", lambda _client, _name: 0)
    monkeypatch.setattr(readiness, "tail_of", lambda _client, _name, _lines: [])
    with pytest.raises(NotReadyError, match=r"^container backendai-a-main1 ended while it started$") as raised:
        wait(container)
    assert raised.value.printed == ()


def test_lines_of_a_container_are_safe_and_short(container: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "pid_of", lambda _client, _name: 0)
    monkeypatch.setattr(readiness, "tail_of", lambda *_asked: ["\x1b[2J\x1b]0;owned\x07", "x" * 9999])
    with pytest.raises(NotReadyError) as raised:
        wait(container)
    assert raised.value.printed == (
        "backendai-a-main1: \\x1b[2J\\x1b]0;owned\\x07",
        f"backendai-a-main1: {'x' * readiness.LINE_LENGTH}",
    )
