"""Copying the home of an image: real archives of hostile images, read by a process of the user in its own root."""

from __future__ import annotations

import importlib
import io
import os
import signal
import stat
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import home_copy
from ansible_collections.backendai.cluster.plugins.module_utils._host.home_copy import HomeCopyError, HomeTooLargeError
from ansible_collections.backendai.cluster.plugins.module_utils._host.homes import Homes
from tests.unit.builders import SESSION_ID

USER, GROUP = 12345, 23456
FOLDER, FILE, LINK, NAME = tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    """Return the homes of an agent, with that of no container yet."""
    root = tmp_path / "homes"
    (root / "removed").mkdir(parents=True)
    return Homes(str(root))


@pytest.fixture
def home(homes: Homes) -> Path:
    """Return where the home of the container will be."""
    return homes.folder(SESSION_ID, "main1") / "home"


def entry(name: str, kind: bytes = FILE, content: bytes = b"", **attributes: Any) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.size, member.mode = kind, len(content), 0o755 if kind == FOLDER else 0o644
    for attribute, value in attributes.items():
        setattr(member, attribute, value)
    return member, content


TOP = entry("work/", FOLDER)


def archive(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """Return an archive as the engine makes it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as stream:
        for member, content in entries:
            stream.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def chunks(data: bytes) -> Iterator[bytes]:
    return (data[start : start + 50_000] for start in range(0, len(data), 50_000))


def fill(homes: Homes, *entries: tuple[tarfile.TarInfo, bytes]) -> None:
    fill_from(homes, chunks(archive(TOP, *entries)))


def fill_from(homes: Homes, stream: Iterator[bytes]) -> None:
    homes.copy_new(SESSION_ID, "main1", stream, USER, GROUP, image="lab/home:1")
    homes.renew(SESSION_ID, "main1")


def assert_nothing_is_left(homes: Homes) -> None:
    folder = homes.folder(SESSION_ID, "main1")
    assert [*folder.iterdir()] == []
    assert not homes.exists(SESSION_ID, "main1")
    assert homes.has_retired()


def test_files_folders_and_links_become_the_users(homes: Homes, home: Path) -> None:
    fill(
        homes,
        entry("work/.profile", content=b"umask 22\n", mode=0o600, mtime=1_000_000_000, uid=0, gid=0),
        entry("work/bin", FOLDER, mode=0o555, mtime=1_000_000_001),
        entry("work/bin/tool", content=b"#!/bin/sh\n" * 50_000, mode=0o755, uid=4),
        entry("work/bin/same", NAME, linkname="work/bin/tool"),
        entry("work/bin/ünü\udcff\n", content=b"bytes"),
        entry("work/inside", LINK, linkname="bin/tool"),
        entry("work/outside", LINK, linkname="/etc/shadow"),
    )
    assert (home / ".profile").read_bytes() == b"umask 22\n"
    assert (home / "bin/tool").read_bytes() == b"#!/bin/sh\n" * 50_000
    assert (home / "bin/same").samefile(home / "bin/tool")
    assert (home / "bin/ünü\udcff\n").read_bytes() == b"bytes"
    assert (os.readlink(home / "inside"), os.readlink(home / "outside")) == ("bin/tool", "/etc/shadow")
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in (home, *home.iterdir(), home / "bin/tool")}
    assert modes == {"home": 0o700, ".profile": 0o600, "bin": 0o555, "tool": 0o755, "inside": 0o777, "outside": 0o777}
    assert (int((home / ".profile").stat().st_mtime), int((home / "bin").stat().st_mtime)) == (10**9, 10**9 + 1)
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in (home, *home.rglob("*"))} == {(USER, GROUP)}
    assert not homes.has_retired()


def test_nothing_that_gives_rights_is_taken(homes: Homes, home: Path) -> None:
    fill(
        homes,
        entry("work/setuid", content=b"x", mode=0o6755, uid=0),
        entry("work/sticky", FOLDER, mode=0o3777),
        entry("work/disk", tarfile.BLKTYPE, devmajor=8),
        entry("work/memory", tarfile.CHRTYPE, devmajor=1, devminor=1),
        entry("work/pipe", tarfile.FIFOTYPE),
        entry("work/pipe-too", NAME, linkname="work/pipe"),
        # What no kind is known for, such as sockets.
        entry("work/socket", b"s", b"unknown"),
        entry("work/after", content=b"y"),
    )
    found = {path.name: oct(path.lstat().st_mode) for path in home.iterdir()}
    assert found == {"setuid": "0o100755", "sticky": "0o40777", "after": "0o100644"}


@pytest.mark.parametrize(
    "entries",
    [
        [entry("/etc/passwd", content=b"x")],
        [entry("../x", content=b"x")],
        [entry("work/../../x", content=b"x")],
        [entry("other/x", content=b"x")],
        [entry("work/link", LINK, linkname="/"), entry("work/link/x", content=b"x")],
        [entry("work/link", LINK, linkname="."), entry("work/link/x", content=b"x")],
        [entry("work/link", LINK, linkname="/x"), entry("work/link", content=b"x")],
        [entry("work/link", LINK, linkname="/"), entry("work/link", FOLDER)],
        [entry("work/name", NAME, linkname="/etc/passwd")],
        [entry("work/name", NAME, linkname="work/../../etc/passwd")],
        [entry("work/name", NAME, linkname="work/absent")],
        [entry("work/link", LINK, linkname="/"), entry("work/name", NAME, linkname="work/link/etc")],
        [entry("work/absent/x", content=b"x")],
        [entry("work/x", content=b"x"), entry("work/x", content=b"y")],
        [entry("work/file", content=b"x"), entry("work/file/x", content=b"x")],
        [entry("work", content=b"x")],
        [entry("work", LINK, linkname="/")],
        [entry("work/late", mtime=1.5, pax_headers={"mtime": "inf"})],
    ],
    ids=lambda entries: " ".join(member.name + member.linkname for member, _content in entries),
)
def test_an_archive_that_leads_elsewhere_is_refused_in_one_sentence(
    homes: Homes, entries: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    with pytest.raises(HomeCopyError) as error:
        fill(homes, *entries)
    assert str(error.value).startswith("session_image: /home/work of 'lab/home:1' could not be copied: ")
    assert "\n" not in str(error.value)
    assert_nothing_is_left(homes)


def test_a_home_that_is_no_folder_is_refused(homes: Homes) -> None:
    with pytest.raises(HomeCopyError, match="it is no folder"):
        fill_from(homes, chunks(archive(entry("work", content=b"x"))))


def refusal(homes: Homes, stream: Iterator[bytes]) -> str:
    with pytest.raises(HomeTooLargeError) as error:
        fill_from(homes, stream)
    assert_nothing_is_left(homes)
    return str(error.value)


TOO_LARGE = (
    "session_image: 'lab/home:1' has more than 2,000 files or 256 MiB in /home/work, which is the most that is copied"
    f" for user work: make them that user's in the image, with the line RUN chown -R {USER}:{GROUP} /home/work, or use"
    " one that has less there"
)


def test_two_thousand_files_are_copied_and_one_more_is_refused(homes: Homes, home: Path) -> None:
    entries = [entry(f"work/{number}", content=b"x") for number in range(2001)]
    assert refusal(homes, chunks(archive(TOP, *entries))) == TOO_LARGE
    fill(homes, *entries[:2000])
    assert len([*home.iterdir()]) == 2000


def test_what_is_left_out_counts_too(homes: Homes) -> None:
    entries = [entry(f"work/{number}", tarfile.FIFOTYPE) for number in range(2001)]
    assert refusal(homes, chunks(archive(TOP, *entries))) == TOO_LARGE


def sparse_file(size: int) -> Iterator[bytes]:
    """Yield the archive of a file without content, as the engine sends it: all of it."""
    yield from (member.tobuf() for member in (TOP[0], entry("work/core", size=size)[0]))
    for _mebibyte in range(size >> 20):
        yield bytes(1 << 20)
    yield bytes(1024)


def test_257_mib_are_refused_even_if_they_take_no_room(homes: Homes) -> None:
    assert refusal(homes, sparse_file(257 << 20)) == TOO_LARGE


def test_256_mib_are_copied(homes: Homes, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_copy, "BYTES", 3 << 20)
    fill_from(homes, sparse_file(3 << 20))
    assert (home / "core").stat().st_size == 3 << 20


def test_no_more_of_five_gib_is_read_than_needed(homes: Homes) -> None:
    sent = 0

    def counted() -> Iterator[bytes]:
        nonlocal sent
        for chunk in sparse_file(5 << 30):
            sent += len(chunk)
            yield chunk

    assert refusal(homes, counted()) == TOO_LARGE
    assert sent < 16 << 20


def test_a_sparse_map_gives_no_file_of_any_size(homes: Homes, home: Path) -> None:
    pax = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(1 << 45), "GNU.sparse.map": "0,1"}
    fill(homes, entry("work/sparse", content=b"x", pax_headers=pax))
    assert [*home.iterdir()] == []


def test_headers_without_end_are_refused(homes: Homes) -> None:
    endless = entry("work/x", pax_headers={"comment": "x" * (9 << 20)})
    assert refusal(homes, chunks(archive(TOP, endless))) == TOO_LARGE


@pytest.mark.parametrize("cut", [0, 100, 512, 1500, 60_000, -1024, -512])
def test_an_archive_that_was_cut_off_is_no_home(homes: Homes, cut: int) -> None:
    packed = archive(TOP, entry("work/a", content=b"x" * 100_000))
    packed = packed[: len(packed.rstrip(b"\0")) // 512 * 512 + 1536]
    with pytest.raises(HomeCopyError):
        fill_from(homes, chunks(packed[:cut]))
    assert_nothing_is_left(homes)


def test_an_error_of_the_engine_is_raised_and_nothing_is_left(homes: Homes) -> None:
    def broken() -> Iterator[bytes]:
        yield archive(TOP)[:512]
        raise ConnectionResetError("the engine went away")

    with pytest.raises(ConnectionResetError, match="went away"):
        fill_from(homes, broken())
    assert_nothing_is_left(homes)


def child_of(pid: int) -> int:
    """Return the newest process that this thread has begun; others may be left of other tests."""
    return int(Path(f"/proc/{pid}/task/{threading.get_native_id()}/children").read_text().split()[-1])


@pytest.fixture
def operators_groups() -> Iterator[None]:
    """Give this process supplementary groups."""
    before = os.getgroups()
    os.setgroups([4, 24])
    yield
    os.setgroups(before)


@pytest.mark.usefixtures("operators_groups")
def test_the_process_that_reads_is_the_user_without_rights_in_the_home(homes: Homes, home: Path) -> None:
    seen: dict[str, Any] = {}

    def watched() -> Iterator[bytes]:
        packed = archive(TOP, entry("work/a", content=b"x"))
        yield packed[:512]
        child = Path(f"/proc/{child_of(os.getpid())}")
        for _attempt in range(500):
            status = dict(line.split(":\t", 1) for line in (child / "status").read_text().splitlines())
            seen["ids"] = {name: status[name].split() for name in ("Uid", "Gid", "Groups", "CapEff", "CapPrm")}
            # Whoever is the user has left the root folder of this process before.
            seen["root"] = os.readlink(child / "root")
            if seen["ids"]["Uid"][0] != "0":
                break
            time.sleep(0.01)
        yield packed[512:]

    fill_from(homes, watched())
    assert seen["root"] == str(home.with_name("home.new"))
    assert seen["ids"] == {
        "Uid": [str(USER)] * 4,
        "Gid": [str(GROUP)] * 4,
        "Groups": [],
        "CapEff": ["0" * 16],
        "CapPrm": ["0" * 16],
    }


def test_nothing_of_the_image_is_loaded_as_code(homes: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    place = next(path for path in sys.path if path.endswith("lib-dynload"))

    def import_module(_source: int) -> str:
        os.makedirs(place)
        Path(place, "code_of_the_image.py").write_text("")
        try:
            importlib.import_module("code_of_the_image")
        except ImportError:
            return "there is no such module"
        return "code of the image was run"

    monkeypatch.setattr(home_copy, "_problem", import_module)
    with pytest.raises(HomeCopyError, match="there is no such module"):
        fill(homes)


def test_a_copy_that_is_killed_is_never_taken_for_a_home(homes: Homes) -> None:
    def killed() -> Iterator[bytes]:
        packed = archive(TOP, entry("work/a", content=b"x" * 100_000))
        yield packed[:1024]
        os.kill(child_of(os.getpid()), signal.SIGKILL)
        yield packed[1024:]

    with pytest.raises(HomeCopyError, match="the copy was killed"):
        fill_from(homes, killed())
    assert_nothing_is_left(homes)


def silence() -> Iterator[bytes]:
    time.sleep(60)
    yield b""


def test_what_an_agent_that_was_killed_has_left_is_put_away(homes: Homes, home: Path) -> None:
    pid = os.fork()
    if pid == 0:
        fill_from(homes, silence())
        os._exit(0)
    new = home.with_name("home.new")
    while not new.exists():
        time.sleep(0.01)
    (new / "half").touch()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert not homes.exists(SESSION_ID, "main1")
    fill(homes, entry("work/a", content=b"x"))
    assert [path.name for path in home.iterdir()] == ["a"]
    assert [path.name for path in homes.removed.glob("*/half")] == ["half"]


def test_a_copy_that_takes_too_long_ends(homes: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_copy, "SECONDS", 0.5)

    def stopped() -> Iterator[bytes]:
        yield archive(TOP)[:512]
        os.kill(child_of(os.getpid()), signal.SIGSTOP)
        while True:
            yield bytes(1 << 20)

    with pytest.raises(HomeCopyError, match=r"it took more than 0\.5 seconds"):
        fill_from(homes, stopped())
    assert_nothing_is_left(homes)


def test_a_disk_that_is_full_is_said(homes: Homes) -> None:
    full = homes.root / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(full)], check=True)
    try:
        small = Homes(str(full))
        small.removed.mkdir()
        with pytest.raises(HomeCopyError, match="could not be copied: No space left on device"):
            fill(small, entry("work/a", content=b"x" * 1_000_000))
        assert small.retire(SESSION_ID)
    finally:
        subprocess.run(["umount", str(full)], check=True)


def test_homes_are_filled_side_by_side(homes: Homes) -> None:
    names = [f"sub{number}" for number in range(1, 9)]
    errors = []

    def work(name: str) -> None:
        try:
            packed = archive(TOP, *(entry(f"work/{number}", content=b"x" * 1000) for number in range(100)))
            homes.copy_new(SESSION_ID, name, chunks(packed), USER, GROUP, image="lab/home:1")
            homes.renew(SESSION_ID, name)
        except Exception as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=[name]) for name in names]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    assert {len([*(homes.folder(SESSION_ID, name) / "home").iterdir()]) for name in names} == {100}
