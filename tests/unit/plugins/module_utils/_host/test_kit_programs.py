"""The programs of a kit are found where distributions have them, and what is not usable is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import kit_programs
from ansible_collections.backendai.cluster.plugins.module_utils._host.kit import PROGRAMS, KitBuildError

# What is before the name of the loader may be anything, such as the end of an identifier.
LOADER = b"\x7fELF\xea{/lib64/ld-linux-x86-64.so.2\0"
PLACES = {"sshd": "usr/sbin", "ssh-keygen": "usr/bin", "busybox": "bin"}
LISTED = """\
\tlinux-vdso.so.1 (0x00007ff850356000)
\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007ff84ff37000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007ff84f81e000)
\t/lib64/ld-linux-x86-64.so.2 => /packages/ld-linux-x86-64.so.2 (0x00007ff850358000)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root folder with all programs, whose loader lists one library, and names what it is asked."""
    libraries = tmp_path / "lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    loader = libraries / "ld-linux-x86-64.so.2"
    loader.write_text(
        f"#!/bin/sh\nenv > {tmp_path}/environment\nprintf '\\tlibz.so.1 => {libraries}/libz.so.1 (0x7f)\\n'\n"
    )
    loader.chmod(0o755)
    (libraries / "libz.so.1").write_bytes(b"library")
    for name in ("busybox", *PROGRAMS):
        put(tmp_path, PLACES.get(name, "usr/bin"), name, b"\x7fELF static" if name == "busybox" else LOADER)
    return tmp_path


def put(root: Path, folder: str, name: str, content: bytes = LOADER) -> None:
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder / name).write_bytes(content)


def test_programs_come_with_their_loader_and_libraries(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/own")
    files = kit_programs.find_files([root])
    loader = root / "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
    assert files["bin/busybox"] == root / "bin/busybox"
    assert {files[f"loader/{name}"] for name in PROGRAMS} == {loader}
    assert files["lib/libz.so.1"] == loader.with_name("libz.so.1")
    assert "LD_LIBRARY_PATH" not in (root / "environment").read_text()
    contents = kit_programs.read_files(files)
    assert {path: contents[path].mode for path in ("lib/libz.so.1", "loader/ssh")} == {
        "lib/libz.so.1": 0o644,
        "loader/ssh": 0o755,
    }


@pytest.mark.parametrize("folder", ["usr/lib/openssh", "usr/libexec/openssh", "usr/lib/ssh"])
def test_what_sshd_starts_is_found_where_each_family_has_it(root: Path, folder: str) -> None:
    assert "libexec/sshd-session" not in kit_programs.find_files([root])
    put(root, folder, "sshd-session")
    assert kit_programs.find_files([root])["libexec/sshd-session"] == root / folder / "sshd-session"


def test_all_programs_that_a_host_lacks_are_named_at_once(root: Path) -> None:
    (root / "usr/bin/sftp").unlink()
    (root / "bin/busybox").unlink()
    assert kit_programs.find_missing([root]) == ["busybox", "sftp"]
    with pytest.raises(
        KitBuildError, match=r"^This host has no busybox, sftp for the runtime kit: install what has them"
    ):
        kit_programs.find_files([root])


def test_a_busybox_that_needs_libraries_is_refused_since_it_runs_in_any_image(root: Path) -> None:
    put(root, "bin", "busybox", LOADER)
    with pytest.raises(KitBuildError, match=r"bin/busybox is not static, .* install busybox-static"):
        kit_programs.find_files([root])


@pytest.mark.parametrize("content", [b"#!/bin/sh\n", LOADER.replace(b"x86-64", b"aarch64")])
def test_a_program_whose_loader_is_not_there_is_named(root: Path, content: bytes) -> None:
    put(root, "usr/bin", "scp", content)
    with pytest.raises(KitBuildError, match="usr/bin/scp has no dynamic loader: "):
        kit_programs.find_files([root])


def test_programs_of_an_old_c_library_are_refused_since_its_loader_cannot_start_them(root: Path) -> None:
    loader = root / "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
    loader.write_text('#!/bin/sh\necho "$1: error while loading shared libraries: $1: cannot open it" >&2; exit 127\n')
    with pytest.raises(
        KitBuildError, match=r"usr/sbin/sshd is of a C library before glibc 2\.34: set agent_kit to a file"
    ):
        kit_programs.find_files([root])


def test_what_a_loader_lists_are_the_libraries_without_itself() -> None:
    assert kit_programs.parse_libraries(Path("/usr/bin/ssh"), LISTED) == {
        "lib/libz.so.1": Path("/lib/x86_64-linux-gnu/libz.so.1"),
        "lib/libc.so.6": Path("/lib/x86_64-linux-gnu/libc.so.6"),
    }
    with pytest.raises(KitBuildError, match=r"^/usr/sbin/sshd needs libcrypto.so.3, which is not installed: reinstall"):
        kit_programs.parse_libraries(Path("/usr/sbin/sshd"), "\tlibcrypto.so.3 => not found\n")
