"""How containers are ended: asked, given time, killed."""

from __future__ import annotations

from typing import Any

import pytest
from docker.errors import APIError

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels, stop
from ansible_collections.backendai.cluster.plugins.module_utils._docker.stop import KILL_SECONDS, stop_containers
from tests.unit.fake_docker import FakeDocker

BEARS = {labels.OWNER: labels.OWNER_VALUE, labels.SESSION_ID: "1"}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time of a clock that advances only in sleep."""
    now = [0.0]
    monkeypatch.setattr(stop.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(stop.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def engine(**states: dict[str, Any]) -> Any:
    fake = FakeDocker()
    fake.made += [{"Id": name, "Labels": BEARS, "State": "running", **state} for name, state in states.items()]
    return fake


def test_containers_that_end_when_asked_are_not_killed(clock: list[float]) -> None:
    client = engine(a={}, b={}, c={"State": "exited"}, other={})
    assert stop_containers(client, {"a": 30, "b": 5, "c": 30}) == set()
    assert sorted(client.calls) == ["SIGPWR a", "SIGPWR b"]
    assert client._container("other")["State"] == "running"
    assert clock[0] < 1


def test_only_those_that_exceed_their_own_grace_are_killed(clock: list[float]) -> None:
    client = engine(a={"Stubborn": True}, b={}, c={"Stubborn": True})
    assert stop_containers(client, {"a": 3, "b": 3, "c": 7}) == {"a", "c"}
    assert client.calls[3:] == ["kill a", "kill c"]
    assert 7 <= clock[0] < 8


@pytest.mark.usefixtures("clock")
def test_without_a_grace_nothing_is_asked_and_no_grace_exceeded() -> None:
    client = engine(a={"Stubborn": True})
    assert stop_containers(client, {"a": 0}) == set()
    assert client.calls == ["kill a"]


def test_container_that_cannot_be_killed_is_left_to_its_removal(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = engine(a={})

    def refuse(container: str, signal: str) -> None:
        raise APIError(f"{signal} {container}")

    monkeypatch.setattr(client, "kill", refuse)
    assert stop_containers(client, {"a": 2}) == {"a"}
    assert 2 + KILL_SECONDS <= clock[0] < 3 + KILL_SECONDS
