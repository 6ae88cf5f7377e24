"""What an agent remembers about registries."""

from __future__ import annotations

import concurrent.futures
import os
import time
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import processes
from ansible_collections.backendai.cluster.plugins.module_utils._host.registry_records import (
    ALLOWED_SECONDS,
    RegistryRecords,
)

REPOSITORY, OTHER = "registry.test/team/private", "registry.test/team/other"
READER = {"username": "reader", "password": "hunter2"}
NOBODY: dict[str, str] = {}


@pytest.fixture
def records(tmp_path: Path) -> RegistryRecords:
    """Return the records of an agent that has none yet."""
    return RegistryRecords(tmp_path / "registries")


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Advance the clock of this boot."""
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    monkeypatch.setattr(time, "clock_gettime", lambda _clock: now + seconds)


# ---- private repositories


def test_reading_creates_nothing(records: RegistryRecords, tmp_path: Path) -> None:
    assert not records.any_private()
    assert not records.is_private(REPOSITORY)
    assert list(tmp_path.iterdir()) == []


def test_repository_is_private_from_the_beginning_of_a_pull(records: RegistryRecords) -> None:
    records.begin_private(REPOSITORY)
    assert records.any_private()
    assert [records.is_private(each) for each in (REPOSITORY, OTHER)] == [True, False]


def test_repository_stays_private_after_a_pull(records: RegistryRecords, tmp_path: Path) -> None:
    for _pull in range(3):
        records.begin_private(REPOSITORY).keep()
    assert records.is_private(REPOSITORY)
    assert len(list((tmp_path / "registries" / "private").iterdir())) == 1


def test_failed_pull_makes_nothing_private(records: RegistryRecords) -> None:
    records.begin_private(REPOSITORY).discard()
    assert not records.any_private()


def test_failed_pull_leaves_the_marks_of_other_pulls(records: RegistryRecords) -> None:
    failing, running = records.begin_private(REPOSITORY), records.begin_private(REPOSITORY)
    failing.discard()
    assert records.is_private(REPOSITORY)
    running.keep()
    records.begin_private(REPOSITORY).discard()
    assert records.is_private(REPOSITORY)


# ---- allowed logins


def test_permission_is_for_one_repository_and_login(records: RegistryRecords) -> None:
    records.allow(REPOSITORY, READER)
    assert records.is_allowed(REPOSITORY, READER)
    assert not records.is_allowed(OTHER, READER)
    for other in (
        NOBODY,
        {**READER, "password": "hunter3"},
        {**READER, "username": "writer"},
        {"username": "", "password": ""},
    ):
        assert not records.is_allowed(REPOSITORY, other)


def test_permission_of_everybody_is_recorded_too(records: RegistryRecords) -> None:
    records.allow(REPOSITORY, NOBODY)
    assert records.is_allowed(REPOSITORY, NOBODY)
    assert not records.is_allowed(REPOSITORY, READER)


def test_permission_expires(records: RegistryRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    records.allow(REPOSITORY, READER)
    later(monkeypatch, ALLOWED_SECONDS - 5)
    assert records.is_allowed(REPOSITORY, READER)
    later(monkeypatch, 10)
    assert not records.is_allowed(REPOSITORY, READER)


def test_change_of_the_time_of_day_extends_no_permission(
    records: RegistryRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    records.allow(REPOSITORY, READER)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    later(monkeypatch, ALLOWED_SECONDS + 5)
    assert not records.is_allowed(REPOSITORY, READER)


def test_permission_ends_with_a_reboot(
    records: RegistryRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records.allow(REPOSITORY, READER)
    (tmp_path / "boot_id").write_text("another\n")
    monkeypatch.setattr(processes, "BOOT_ID", tmp_path / "boot_id")
    assert not records.is_allowed(REPOSITORY, READER)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"version": 3, "boot": 1}', '{"version": 99}', "\x00"])
def test_damaged_permission_is_none(records: RegistryRecords, tmp_path: Path, content: str) -> None:
    records.allow(REPOSITORY, READER)
    (path,) = (tmp_path / "registries" / "allowed").iterdir()
    path.write_text(content.replace("1}", f'"{processes.boot_id()}"}}'))
    assert not records.is_allowed(REPOSITORY, READER)


def test_expired_permissions_are_removed(records: RegistryRecords, tmp_path: Path) -> None:
    records.allow(REPOSITORY, READER)
    (path,) = (tmp_path / "registries" / "allowed").iterdir()
    os.utime(path, (0, time.time() - ALLOWED_SECONDS - 60))
    records.allow(OTHER, READER)
    assert not path.exists()
    assert records.is_allowed(OTHER, READER)


def test_processes_that_create_the_key_at_once_use_the_same(records: RegistryRecords, tmp_path: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _number: records.allow(REPOSITORY, READER), range(8)))
    assert len(list((tmp_path / "registries" / "allowed").iterdir())) == 1
    assert [path.name for path in (tmp_path / "registries").iterdir() if path.is_file()] == ["key"]


def test_agents_have_different_keys(records: RegistryRecords, tmp_path: Path) -> None:
    records.allow(REPOSITORY, READER)
    other = RegistryRecords(tmp_path / "other")
    other.allow(REPOSITORY, READER)
    assert {path.name for path in (tmp_path / "registries" / "allowed").iterdir()}.isdisjoint(
        path.name for path in (tmp_path / "other" / "allowed").iterdir()
    )


def test_records_are_for_root_only_and_contain_no_password(records: RegistryRecords, tmp_path: Path) -> None:
    records.begin_private(REPOSITORY).keep()
    records.allow(REPOSITORY, READER)
    paths = list(tmp_path.rglob("*"))
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_file()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_dir()} == {0o700}
    contents = [path.read_bytes() for path in paths if path.is_file()] + [str(path).encode() for path in paths]
    assert not [text for text in contents if b"hunter2" in text or b"reader" in text]
