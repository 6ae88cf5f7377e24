"""A role writes down what is on a host before it installs something, and what has come with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import host_record as record_file
from ansible_collections.backendai.cluster.plugins.module_utils._host import installation
from ansible_collections.backendai.cluster.plugins.module_utils._host.host_record import HostRecord, Installed
from ansible_collections.backendai.cluster.plugins.modules import host_record
from tests.unit.module_runs import result_of

BARE = Installed(frozenset({"bash"}))
BEGUN = {"state": "begun", "packages": ["runc=1.1*"], "sysctls": ["net.ipv4.ip_forward"], "units": ["docker.service"]}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Installed]:
    """Return what is installed, as the last of a list; the host has no record."""
    installed = [BARE]
    path = tmp_path / "before.json"
    monkeypatch.setattr(installation, "read_installed", lambda: installed[-1])
    monkeypatch.setattr(installation, "read_automatic", frozenset)
    monkeypatch.setattr(installation, "read_tables", lambda: ["ip nat"])
    monkeypatch.setattr(installation, "read_sysctls", lambda names: dict.fromkeys(names, "0"))
    monkeypatch.setattr(installation, "read_units", lambda names: dict.fromkeys(names, "not-found"))
    monkeypatch.setattr(host_record, "find_roles", list)
    monkeypatch.setattr(host_record, "read_record", lambda: record_file.read_record(path))
    monkeypatch.setattr(host_record, "write_record", lambda record: record_file.write_record(record, path))
    return installed


def test_the_record_has_what_was_there_and_what_came(
    host: list[Installed], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(given: dict[str, Any], **options: Any) -> bool:
        return bool(result_of("host_record", given, capsys, **options)["changed"])

    assert run(BEGUN, check_mode=True)
    assert not (tmp_path / "before.json").exists()
    assert run(BEGUN)
    host.append(BARE | Installed(frozenset({"runc", "libseccomp2"})))
    assert run({"state": "ended"})
    assert not run(BEGUN)
    assert not run({"state": "ended"})
    assert record_file.read_record(tmp_path / "before.json") == HostRecord(
        added=Installed(frozenset({"runc", "libseccomp2"})),
        sysctls={"net.ipv4.ip_forward": "0"},
        units={"docker.service": "not-found"},
        tables=("ip nat",),
    )


def test_where_the_engine_comes_from_is_kept_until_another_is_named(
    host: list[Installed], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for given, kept in (("present", "present"), ("", "present"), ("docker-ce", "docker-ce")):
        result_of("host_record", {**BEGUN, "engine": given}, capsys)
        host.append(host[-1])
        result_of("host_record", {"state": "ended"}, capsys)
        record = record_file.read_record(tmp_path / "before.json")
        assert record is not None
        assert record.agent_engine == kept
