"""The engine of a host that is given back may have been stopped by an earlier removal."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import leaving_engine
from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import DockerUnavailableError
from ansible_collections.backendai.cluster.plugins.module_utils._docker.leaving_engine import connect_unless_removed
from ansible_collections.backendai.cluster.plugins.module_utils._host.host_record import HostRecord, write_record


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the record of a host whose engine does not answer."""

    def connect(_address: str) -> Any:
        raise DockerUnavailableError("it does not answer")

    monkeypatch.setattr(shutil, "which", lambda _name: "/usr/sbin/dockerd")
    monkeypatch.setattr(leaving_engine, "connect", connect)
    return tmp_path / "before.json"


def test_an_engine_that_a_removal_has_stopped_counts_as_gone(record: Path) -> None:
    write_record(HostRecord(engine_folder="/var/lib/docker"), record)
    assert connect_unless_removed("unix:///x", record) is None


@pytest.mark.parametrize("recorded", [True, False])
def test_an_engine_that_others_have_stopped_may_have_containers(record: Path, recorded: bool) -> None:
    if recorded:
        write_record(HostRecord(), record)
    with pytest.raises(DockerUnavailableError):
        connect_unless_removed("unix:///x", record)


def test_an_engine_that_answers_is_asked_even_if_a_removal_has_begun(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_record(HostRecord(engine_folder="/var/lib/docker"), record)
    monkeypatch.setattr(leaving_engine, "connect", lambda address: f"client of {address}")
    client: Any = connect_unless_removed("unix:///x", record)
    assert client == "client of unix:///x"


def test_a_host_without_an_engine_has_none(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert connect_unless_removed("unix:///x", record) is None
