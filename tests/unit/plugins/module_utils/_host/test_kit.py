# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import kit
from ansible_collections.backendai.cluster.plugins.module_utils._host.kit import Kit, KitFile
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change

SMALL = Kit({"bin/ssh": KitFile(b"wrapper", 0o755), "lib/libc.so.6": KitFile(b"library", 0o644)})


def changed(**contents: bytes) -> Kit:
    """Return a kit that differs from the small one in its wrapper."""
    return Kit({**SMALL.files, "bin/ssh": KitFile(contents["wrapper"], 0o755)})


def put(new_kit: Kit, root: Path) -> None:
    kit.install_kit(new_kit, str(root), kit.kit_changes(new_kit, str(root)))


@pytest.mark.parametrize("text", ["#!/bin/sh\n# What it does.\nexit 0\n", "# What it does.\nexit 0\n"])
def test_script_is_run_by_the_shell_of_the_kit(text: str) -> None:
    expected = b"#!/opt/backendai/bin/busybox sh\n# What it does.\nexit 0\n"
    assert kit.script(text) == KitFile(expected, 0o755)


def test_programs_of_the_kit_read_no_file_of_the_image_that_they_would_obey() -> None:
    contents = {
        "libexec/sshd": b"see /etc/nologin for it\0/etc/nologin\0more",
        "loader/sshd": b"code\0/etc/ld.so.preload\0more",
        "lib/libc.so.6": b"\0/etc/nsswitch.conf\0more",
        "bin/busybox": b"\0/etc/busybox.conf\0/etc/nologin\0",
    }
    files = kit.build_kit({}, {path: KitFile(content, 0o755) for path, content in contents.items()}).files
    assert {path: files[path].content for path in contents} == {
        "libexec/sshd": b"see /etc/nologin for it\0/proc/0/none\0more",
        "loader/sshd": b"code\0/opt/backendai/non\0more",
        "lib/libc.so.6": b"\0/opt/backendai/nss\0more",
        "bin/busybox": b"\0/opt/backendai/no\0/proc/0/none\0",
    }
    assert files["bin/sh"] == files["bin/busybox"]
    assert files["nss"].content.splitlines()[0] == b"passwd: files"


def test_replaced_paths_are_as_long_as_before() -> None:
    assert [len(path) for path in kit.REPLACED_PATHS] == [len(path) for path in kit.REPLACED_PATHS.values()]


def test_sshd_is_configured_for_the_programs_that_its_version_has() -> None:
    assert kit.sshd_config([]) == kit.SSHD_CONFIG
    newer = kit.sshd_config(["sshd-session", "sshd-auth"])
    assert newer.removeprefix(kit.SSHD_CONFIG).splitlines() == [
        "PerSourcePenalties no",
        "SshdSessionPath /opt/backendai/bin/sshd-session",
        "SshdAuthPath /opt/backendai/bin/sshd-auth",
    ]


def test_kit_version_depends_only_on_content_mode_and_name() -> None:
    content = SMALL.files["bin/ssh"].content
    others = [
        changed(wrapper=b"another"),
        Kit({**SMALL.files, "bin/ssh": KitFile(content, 0o700)}),
        Kit({"bin/scp" if path == "bin/ssh" else path: file for path, file in SMALL.files.items()}),
    ]
    assert len({SMALL.version, *(other.version for other in others)}) == 4
    assert Kit(dict(sorted(SMALL.files.items(), reverse=True))).version == SMALL.version


def test_new_kit_is_installed_and_made_current(tmp_path: Path) -> None:
    put(SMALL, tmp_path)

    assert kit.current_version(str(tmp_path)) == SMALL.version
    wrapper = tmp_path / "current" / "bin" / "ssh"
    assert (wrapper.read_bytes(), wrapper.stat().st_mode & 0o777) == (b"wrapper", 0o755)
    assert sorted(os.listdir(tmp_path)) == sorted(["current", SMALL.version])
    assert kit.kit_changes(SMALL, str(tmp_path)) == []


def test_kit_folders_are_readable_by_all_users_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        put(SMALL, tmp_path)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / SMALL.version, tmp_path / "current" / "bin")} == {0o755}


def test_kit_changes_list_each_file_and_the_current_link(tmp_path: Path) -> None:
    subjects = [change.subject for change in kit.kit_changes(SMALL, str(tmp_path))]
    assert subjects == [f"{SMALL.version}/bin/ssh", f"{SMALL.version}/lib/libc.so.6", "current"]


def test_damaged_kit_file_is_repaired_in_its_folder(tmp_path: Path) -> None:
    put(SMALL, tmp_path)
    folder = (tmp_path / SMALL.version).stat().st_ino
    (tmp_path / "current" / "bin" / "ssh").write_bytes(b"damaged")

    changes = kit.kit_changes(SMALL, str(tmp_path))
    assert [change.subject for change in changes] == [f"{SMALL.version}/bin/ssh"]
    kit.install_kit(SMALL, str(tmp_path), changes)

    assert kit.kit_changes(SMALL, str(tmp_path)) == []
    assert (tmp_path / SMALL.version).stat().st_ino == folder


def test_partial_kit_of_an_interrupted_run_is_replaced(tmp_path: Path) -> None:
    (tmp_path / f".{SMALL.version}").mkdir()
    (tmp_path / f".{SMALL.version}" / "half").write_text("written")
    (tmp_path / ".current").symlink_to("nowhere")

    put(SMALL, tmp_path)

    assert kit.kit_changes(SMALL, str(tmp_path)) == []
    assert not (tmp_path / "current" / "half").exists()


def test_mounted_and_previous_kit_versions_are_kept(tmp_path: Path) -> None:
    oldest, older, old, new = (changed(wrapper=name) for name in (b"oldest", b"older", b"old", b"new"))
    for version in (oldest, older, old):
        put(version, tmp_path)
    (tmp_path / "notes").mkdir()

    unused = kit.unused_versions(new, str(tmp_path), {str(tmp_path / older.version)})
    kit.remove_kit(str(tmp_path), unused)

    assert unused == [oldest.version]
    assert sorted(os.listdir(tmp_path)) == sorted(["current", "notes", older.version, old.version])


def test_kit_versions_are_removed_only_when_a_new_one_replaces_them(tmp_path: Path) -> None:
    old, new = changed(wrapper=b"old"), changed(wrapper=b"new")
    assert kit.unused_versions(old, str(tmp_path / "nowhere"), set()) == []
    put(old, tmp_path)
    put(new, tmp_path)
    assert kit.unused_versions(new, str(tmp_path), set()) == []


def test_change_of_the_current_kit_shows_both_versions(tmp_path: Path) -> None:
    put(SMALL, tmp_path)
    new = changed(wrapper=b"new")
    assert Change("current", SMALL.version, new.version) in kit.kit_changes(new, str(tmp_path))
