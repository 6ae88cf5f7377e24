"""The home of programs: check mode, the current release of units, and removal of unused programs."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._program import launcher
from tests.unit.program import ECHO, Host, archive_of

ARCHIVE, OTHER = archive_of(), archive_of(f"{ECHO}\n# changed\n")
DAY = 86400


def current(host: Host) -> str | None:
    """Return the name of the folder with the current program."""
    link = host.home / launcher.CURRENT
    return os.readlink(link) if link.is_symlink() else None


def age(path: Path, seconds: float) -> None:
    """Set the age of a path."""
    then = time.time() - seconds
    os.utime(path, (then, then), follow_symlinks=False)


def state_of(host: Host) -> dict[str, tuple[float, int]]:
    """Return the entries of the home with their modification times."""
    return {str(path): (path.lstat().st_mtime, path.lstat().st_ino) for path in [host.home, *host.home.rglob("*")]}


# ---- check mode


def test_check_mode_runs_a_missing_program_without_installing_it(host: Host) -> None:
    assert host.ask(ARCHIVE, send=False, check=True) == {"missing": True}
    reply = host.ask(ARCHIVE, check=True, request={"phase": "survey"})
    assert (reply["installed"], reply["result"]["request"]) == (True, {"phase": "survey"})
    assert reply["result"]["ran"].startswith(f"{host.cwd}/backendai-")
    assert (host.home.exists(), list(host.cwd.iterdir())) == (False, [])


@pytest.mark.parametrize("release", ["0.9.0", "1.0.0", "1.1.0"])
def test_check_mode_runs_an_installed_program_and_writes_nothing(host: Host, release: str) -> None:
    host.provision(OTHER)
    host.ask(ARCHIVE, release="0.9.0")
    age(host.folder(ARCHIVE), 40 * DAY)
    before = state_of(host)
    reply = host.ask(ARCHIVE, send=False, check=True, release=release)
    assert reply["result"]["ran"].startswith(f"{host.folder(ARCHIVE)}/")
    assert reply["installed"] is (release == "1.1.0")
    assert state_of(host) == before


def test_check_mode_does_not_repair_a_program(host: Host) -> None:
    host.ask(ARCHIVE)
    (host.folder(ARCHIVE) / launcher.PROGRAM).write_bytes(b"")
    before = state_of(host)
    assert host.ask(ARCHIVE, check=True)["installed"] is True
    assert state_of(host) == before


# ---- the program of units


def test_without_provisioning_units_run_nothing(host: Host) -> None:
    host.ask(ARCHIVE)
    assert current(host) is None


@pytest.mark.parametrize("installed", [False, True], ids=["missing", "installed by a task"])
def test_units_run_the_provisioned_program(host: Host, installed: bool) -> None:
    if installed:
        host.ask(ARCHIVE)
    assert host.provision(ARCHIVE, check=True) is True
    assert not host.home.exists() or current(host) is None
    assert host.provision(ARCHIVE) is True
    assert current(host) == host.folder(ARCHIVE).name
    assert (host.provision(ARCHIVE), host.provision(ARCHIVE, check=True)) == (False, False)


@pytest.mark.parametrize("provision", [False, True])
@pytest.mark.parametrize(
    ("ours", "theirs", "moves"),
    [
        ("1.0.0", "0.9.0", True),
        ("0.10.0", "0.9.1", True),
        ("1.0.0", "1.0.1", False),
        ("0.9.1", "0.10.0", False),
        ("1.0.0", "1.0.0-beta.3", None),
        ("1.0.0-beta.3", "1.0.0", None),
        ("1.0.1-beta.1", "1.0.0", True),
        ("1.0.0+build.7", "1.0.0", None),
        ("1.0.0", "1.0.0", None),
    ],
)
def test_units_switch_to_a_newer_release_or_when_provisioned(
    host: Host, ours: str, theirs: str, moves: bool | None, provision: bool
) -> None:
    host.provision(OTHER, theirs)
    moved = provision if moves is None else moves
    would = host.ask(ARCHIVE, release=ours, provision=provision, check=True)
    reply = host.ask(ARCHIVE, release=ours, provision=provision)
    assert current(host) == (host.folder(ARCHIVE) if moved else host.folder(OTHER)).name
    assert (would["installed"], reply["installed"]) == (True, True)
    assert host.ask(ARCHIVE, release=ours, provision=provision)["installed"] is False


@pytest.mark.parametrize("provision", [False, True])
def test_units_with_a_lost_program_run_the_next_one(host: Host, provision: bool) -> None:
    host.provision(OTHER, "9.9.9")
    shutil.rmtree(host.folder(OTHER))
    host.ask(ARCHIVE, provision=provision)
    assert current(host) == host.folder(ARCHIVE).name


def test_leftovers_of_a_killed_task_do_not_block_units(host: Host) -> None:
    host.home.mkdir(parents=True)
    (host.home / f"{launcher.CURRENT}.new").symlink_to("nowhere")
    host.provision(ARCHIVE)
    assert (current(host), host.names()) == (host.folder(ARCHIVE).name, {host.folder(ARCHIVE).name, launcher.CURRENT})


# ---- removal of unused programs


@pytest.mark.parametrize(
    ("name", "seconds", "stays"),
    [
        ("0" * 64 + "-cpython-311", 31 * DAY, False),
        ("0" * 64 + "-cpython-311", 29 * DAY, True),
        (".new-abc", 3700, False),
        (".new-abc", 3500, True),
    ],
)
def test_installation_removes_unused_programs(host: Host, name: str, seconds: float, stays: bool) -> None:
    place = host.home / name
    (place / "sources").mkdir(parents=True)
    age(place, seconds)
    host.ask(ARCHIVE)
    assert place.exists() is stays


def test_without_installation_nothing_is_removed(host: Host) -> None:
    host.ask(OTHER)
    host.ask(ARCHIVE)
    age(host.folder(OTHER), 31 * DAY)
    host.ask(ARCHIVE)
    assert host.folder(OTHER).exists()


def test_used_program_is_kept(host: Host) -> None:
    host.ask(OTHER)
    age(host.folder(OTHER), 31 * DAY)
    host.ask(OTHER)
    assert time.time() - host.folder(OTHER).stat().st_mtime < 600
    host.ask(ARCHIVE)
    assert host.folder(OTHER).exists()


@pytest.mark.parametrize("linked", [False, True], ids=["home", "a link to the home"])
def test_current_program_is_kept_at_any_age(host: Host, linked: bool) -> None:
    host.provision(OTHER)
    age(host.folder(OTHER), 400 * DAY)
    if linked:
        link = host.home.with_name("link")
        link.symlink_to(host.home)
        host.home = link
    host.ask(ARCHIVE, release="0.9.0")
    assert (current(host), host.folder(OTHER).exists()) == (host.folder(OTHER).name, True)
    host.ask(archive_of(""), request=None, release="0.9.0")
    assert host.folder(OTHER).exists()


def test_other_files_are_kept(host: Host) -> None:
    host.home.mkdir(parents=True)
    note = host.home / "README"
    note.write_text("x")
    age(note, 400 * DAY)
    host.ask(ARCHIVE)
    assert note.exists()
