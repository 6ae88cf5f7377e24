"""What an agent has seen in images, and the containers by which it is looking."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.image_records import (
    LOOK_SUFFIXES,
    ImageRecords,
    look_file,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.look_records import Accounts, LookRecords, Seen
from ansible_collections.backendai.cluster.plugins.module_utils._model.image_look import HomeFolder
from ansible_collections.backendai.cluster.plugins.module_utils._model.image_paths import Entry

ID = "sha256:1"
ENTRIES = {"/etc": Entry("folder", 0o755), "/etc/passwd": Entry("link", 0o777, 0, "/x"), "/x": None}
SEEN = Seen(ID, ENTRIES, HomeFolder(1000, 100, 0o750))
ACCOUNTS = Accounts(b"root:\xff\n", b"")
LONG_AGO = time.time() + 3600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "images"


@pytest.fixture
def records(folder: Path) -> LookRecords:
    return LookRecords(folder)


def test_what_was_seen_is_found_again(records: LookRecords) -> None:
    assert (records.find(ID), records.accounts(ID)) == (Seen(ID), None)
    records.save(SEEN, ACCOUNTS)
    assert (records.find(ID), records.accounts(ID)) == (SEEN, ACCOUNTS)
    records.save(Seen(ID, {}), None)
    assert (records.find(ID), records.accounts(ID)) == (Seen(ID, {}), ACCOUNTS)


def test_records_are_for_root_only_and_smaller_than_what_an_image_has(records: LookRecords, folder: Path) -> None:
    records.save(SEEN, Accounts(b"\0" * (10 << 20), b"\xff" * (10 << 20)))
    paths = [*(folder / "looks").iterdir()]
    assert len(paths) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    assert stat.S_IMODE(paths[0].parent.stat().st_mode) == 0o700
    assert sum(path.stat().st_size for path in paths) < 1 << 20


@pytest.mark.parametrize(("old", "new"), [("sha256:1", "sha256:2"), ("}", ""), ('"folder"', "5")])
def test_a_damaged_record_says_nothing(records: LookRecords, folder: Path, old: str, new: str) -> None:
    records.save(SEEN, ACCOUNTS)
    path = look_file(folder, ID, ".json")
    path.write_text(path.read_text().replace(old, new))
    assert records.find(ID) == Seen(ID)


@pytest.mark.parametrize("content", [None, b"", b"damaged"])
def test_damaged_files_of_users_and_groups_say_nothing(
    records: LookRecords, folder: Path, content: bytes | None
) -> None:
    records.save(SEEN, ACCOUNTS)
    path = look_file(folder, ID, ".group")
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert records.accounts(ID) is None


def test_records_go_with_their_images(records: LookRecords, folder: Path) -> None:
    images = ImageRecords(folder)
    for image in ("sha256:1", "sha256:2", "sha256:3"):
        records.save(Seen(image, ENTRIES), ACCOUNTS)
    with records.looking("look-") as name:
        images.keep_only(["sha256:1", "sha256:2"])
        images.forget("sha256:2")
        assert sorted(path.name for path in (folder / "looks").iterdir()) == sorted(
            [name, *(look_file(folder, "sha256:1", suffix).name for suffix in LOOK_SUFFIXES)]
        )
    assert records.find("sha256:1").entries == ENTRIES


def test_a_container_is_noted_until_a_look_ends(records: LookRecords) -> None:
    with records.looking("look-") as name:
        assert name.startswith("look-")
        assert records.abandoned("look-", LONG_AGO) == [], "its process lives"
    assert records.abandoned("look-", LONG_AGO) == []


def test_the_container_of_a_killed_process_is_found_and_forgotten(records: LookRecords, folder: Path) -> None:
    pid = os.fork()
    if pid == 0:
        with records.looking("look-"):
            os._exit(0)
    os.waitpid(pid, 0)
    (note,) = (folder / "looks").iterdir()
    assert records.abandoned("look-", time.time()) == [], "it may not be locked yet"
    assert records.abandoned("look-", LONG_AGO) == [note.name]
    assert records.abandoned("look-", note.stat().st_mtime - 3600) == [note.name], "the clock was set back"
    records.forget_look(note.name)
    assert records.abandoned("look-", LONG_AGO) == []


def test_the_container_of_a_failed_look_is_found(records: LookRecords) -> None:
    with pytest.raises(RuntimeError), records.looking("look-") as name:
        raise RuntimeError
    assert records.abandoned("look-", LONG_AGO) == [name]


def test_an_agent_that_never_looked_has_abandoned_nothing(records: LookRecords) -> None:
    assert records.abandoned("look-", LONG_AGO) == []
