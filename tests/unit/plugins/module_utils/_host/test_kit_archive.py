"""An archive of a kit is what was packed, or it is refused in one sentence."""

from __future__ import annotations

import gzip
import io
import json
import platform
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import kit_archive
from ansible_collections.backendai.cluster.plugins.module_utils._host.kit import PROGRAMS, KitBuildError, KitFile
from ansible_collections.backendai.cluster.plugins.module_utils._host.kit_archive import Part, pack, read_archive

MACHINE = platform.machine()
NAMES = ["bin/busybox", *(f"{folder}/{name}" for folder in ("libexec", "loader") for name in PROGRAMS)]
FILES = {**{name: KitFile(name.encode(), 0o755) for name in NAMES}, "lib/libc.so.6": KitFile(b"library", 0o644)}
LICENCES = {"licences/libc6": KitFile(b"Licence", 0o644)}


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    path = tmp_path / "kit.tar.gz"
    path.write_bytes(pack(FILES, [Part("libc6", "2.36", ["LGPL-2.1"])], LICENCES))
    return path


def changed(kit: Path, change: Callable[[dict[str, bytes]], object]) -> None:
    """Pack an archive again after a change of its entries."""
    with tarfile.open(kit) as archive:
        entries = {entry.name: (entry.mode, archive.extractfile(entry)) for entry in archive}
        modes = {name: mode for name, (mode, _file) in entries.items()}
        contents = {name: file.read() for name, (_mode, file) in entries.items() if file}
    change(contents)
    with tarfile.open(kit, "w:gz") as archive:
        for name, content in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), modes.get(name, 0o644)
            archive.addfile(entry, io.BytesIO(content))


def listing(kit: Path, **values: Any) -> None:
    """Change what an archive lists."""

    def change(contents: dict[str, bytes]) -> None:
        contents["kit.json"] = json.dumps({**json.loads(contents["kit.json"]), **values}).encode()

    changed(kit, change)


def refusal(kit: Path, machine: str = MACHINE) -> str:
    with pytest.raises(KitBuildError) as raised:
        read_archive(str(kit), machine)
    sentence = str(raised.value)
    assert sentence.startswith((f"{kit} ", "there is no kit at "))
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence


def test_programs_are_read_as_they_were_packed_and_nothing_else(kit: Path) -> None:
    assert read_archive(str(kit), MACHINE) == (MACHINE, FILES)
    changed(kit, lambda contents: contents.update({"../etc/passwd": b"", "lib/../../x": b"", "etc/sshd_config": b""}))
    assert read_archive(str(kit)) == (MACHINE, FILES)


def test_the_same_programs_give_the_same_file(kit: Path) -> None:
    assert pack(FILES, [Part("libc6", "2.36", ["LGPL-2.1"])], LICENCES) == kit.read_bytes()


def test_a_kit_of_another_architecture_is_refused(kit: Path) -> None:
    assert refusal(kit, "riscv64").startswith(f"{kit} is for {MACHINE}, and this host is riscv64: make one with ")


def test_a_kit_of_another_version_is_refused(kit: Path) -> None:
    listing(kit, format=2)
    assert refusal(kit).startswith(f"{kit} is a kit of version 2, and this release reads version 1: ")


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "cut": lambda kit: kit.write_bytes(kit.read_bytes()[:-200]),
    "empty": lambda kit: kit.write_bytes(b""),
    "flipped": lambda kit: kit.write_bytes(
        kit.read_bytes()[:300] + bytes([kit.read_bytes()[300] ^ 1]) + kit.read_bytes()[301:]
    ),
    "text": lambda kit: kit.write_text("kit"),
    "no archive": lambda kit: kit.write_bytes(gzip.compress(b"kit" * 1000)),
    "another library": lambda kit: changed(kit, lambda contents: contents.update({"lib/libc.so.6": b"other"})),
    "one library more": lambda kit: changed(kit, lambda contents: contents.update({"lib/libx.so": b"other"})),
    "no program": lambda kit: changed(kit, lambda contents: contents.pop("libexec/sshd")),
    "no listing": lambda kit: changed(kit, lambda contents: contents.pop("kit.json")),
    "no JSON": lambda kit: changed(kit, lambda contents: contents.update({"kit.json": b"{"})),
    "a list": lambda kit: changed(kit, lambda contents: contents.update({"kit.json": b"[]"})),
    "no digest": lambda kit: listing(kit, digest=None),
    "no version": lambda kit: listing(kit, format=None),
    "folder": lambda kit: shutil.copytree("/etc/apt", kit.rename(kit.with_name("moved")).with_name(kit.name)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_kit_is_refused(kit: Path, damage: str) -> None:
    DAMAGES[damage](kit)
    assert refusal(kit).startswith(f"{kit} is damaged, or no kit (")


def test_a_kit_that_lacks_a_program_is_refused_though_it_is_intact(kit: Path) -> None:
    few = {name: file for name, file in FILES.items() if name != "loader/sftp"}
    kit.write_bytes(pack(few, [], {}))
    assert refusal(kit).startswith(f"{kit} is damaged, or no kit (")


def test_what_is_known_of_a_kit_before_a_host_is_asked(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kit_archive.describe_kit("host") == {"path": "host"}
    monkeypatch.chdir(kit.parent)
    assert kit_archive.describe_kit("kit.tar.gz") == {"path": str(kit), "architecture": MACHINE}
    kit.unlink()
    said = kit_archive.describe_kit(str(kit))["problem"]
    assert said.startswith(f"there is no kit at {kit}: copy it again, or make it with backendai.cluster.build_kit")


def test_a_host_without_apt_makes_no_kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        KitBuildError, match=r"^This host has no apt-get: name one of Debian's family in agent_kit_host\.$"
    ):
        kit_archive.build_archive(tmp_path)
    assert list(tmp_path.iterdir()) == []
