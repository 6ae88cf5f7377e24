"""Waiting for containers to get through their start."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._agent import readiness
from ansible_collections.backendai.cluster.plugins.module_utils._agent.readiness import NotReady, await_ready
from ansible_collections.backendai.cluster.plugins.module_utils._docker.containers import Running
from ansible_collections.backendai.cluster.plugins.module_utils._docker.logs import LogUnreadable

STARTED = 1_700_000_000.0


@pytest.fixture(autouse=True)
def container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let every container run with this process as its first, and print two lines; return where its mark is."""
    mark = tmp_path / "ready"
    monkeypatch.setattr(readiness, "READY", str(mark))
    monkeypatch.setattr(readiness, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(readiness, "running", lambda _client, _name: Running(os.getpid(), STARTED))
    monkeypatch.setattr(readiness, "tail_of", lambda _client, _name, _lines: ["one", "two"])
    return mark


def wait(seconds: float = 0.0) -> None:
    """Wait for two containers, that long at most."""
    client: Any = object()
    await_ready(client, ["backendai-a-main1", "backendai-a-sub1"], time.monotonic() + seconds)


def test_a_mark_of_this_start_is_enough(container: Path) -> None:
    container.touch()
    wait()


def test_a_mark_that_comes_later_is_waited_for(container: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(_client: object, _name: str) -> Running:
        looks.append(_name)
        if len(looks) == 3:
            container.touch()
        return Running(os.getpid(), STARTED)

    looks: list[str] = []
    monkeypatch.setattr(readiness, "running", looked)
    wait(seconds=60)
    assert looks == ["backendai-a-main1", "backendai-a-sub1"] * 2


def test_one_that_ends_is_told_although_another_is_still_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"backendai-a-main1": Running(os.getpid(), STARTED), "backendai-a-sub1": None}
    monkeypatch.setattr(readiness, "running", lambda _client, name: there[name])
    with pytest.raises(NotReady, match=r"^container backendai-a-sub1 ended while it started"):
        wait(seconds=60)


def test_a_mark_of_an_earlier_start_does_not_count(container: Path) -> None:
    container.touch()
    os.utime(container, (STARTED - 1, STARTED - 1))
    with pytest.raises(NotReady, match=r"^container backendai-a-main1 is not through .* ends with: one / two$"):
        wait()


def test_a_container_that_ends_is_told_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "running", lambda _client, _name: None)
    with pytest.raises(NotReady) as told:
        wait(seconds=60)
    assert str(told.value) == "container backendai-a-main1 ended while it started; its log ends with: one / two"


def test_a_log_that_cannot_be_read_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(_client: object, _name: str, _lines: int) -> list[str]:
        raise LogUnreadable("its log cannot be read (driver none)")

    monkeypatch.setattr(readiness, "running", lambda _client, _name: None)
    monkeypatch.setattr(readiness, "tail_of", unreadable)
    with pytest.raises(NotReady, match=r"main1 ended while it started; its log ends with: its log cannot be read"):
        wait()


def test_a_container_that_printed_nothing_has_no_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "running", lambda _client, _name: None)
    monkeypatch.setattr(readiness, "tail_of", lambda _client, _name, _lines: [])
    with pytest.raises(NotReady, match=r"^container backendai-a-main1 ended while it started$"):
        wait()
