"""The programs of an archive start where there is no C library: in any image, and on any host."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.kit import PROGRAMS, host_command
from tests.unit.kit import kit_programs
from tests.unit.kit.container import KIT, Image


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kit of an archive, on an agent."""
    return kit_programs.install(tmp_path_factory.mktemp("kit"))


def libraries_of(root: Path) -> list[Path]:
    """Return what could be a C library or a loader below a folder."""
    return [path for path in root.rglob("*") if re.match(r"ld-|lib.*\.so", path.name)]


#: What each program says of itself, and the exit code that comes with it.
SAYS = {
    "sshd": (("-?",), "OpenSSH_"),
    "ssh": (("-V",), "OpenSSH_"),
    "scp": (("-?",), "usage: scp"),
    "sftp": (("-?",), "usage: sftp"),
    "ssh-keygen": (("-?",), "usage: ssh-keygen"),
    "shellinaboxd": (("--version",), "ShellInABox version"),
}


def test_every_program_starts_in_an_image_without_a_c_library(tmp_path: Path, kit: Path) -> None:
    tmp_path.chmod(0o755)
    image = Image(tmp_path / "root", kit)
    image.prepare()
    assert libraries_of(image.root) == []
    assert SAYS.keys() == {*PROGRAMS}
    with image.running() as container:
        for name, (options, said) in SAYS.items():
            assert said in container.run(f"{KIT}/bin/{name}", *options, check=False)


def test_a_host_without_a_c_library_and_openssh_makes_keys_with_the_kit(tmp_path: Path, kit: Path) -> None:
    shutil.copytree(kit, tmp_path / "agent/kit")
    for folder in ("dev", "etc"):
        (tmp_path / folder).mkdir()
    os.mknod(tmp_path / "dev/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    assert {path.parent.name for path in libraries_of(tmp_path)} == {"lib"}
    key = ("-q", "-t", "ed25519", "-N", "", "-C", "", "-f", "/key")
    subprocess.run(["chroot", str(tmp_path), *host_command("/agent/kit", "ssh-keygen"), *key], check=True)
    assert (tmp_path / "key.pub").read_text().startswith("ssh-ed25519 ")


def test_versions_and_licences_are_listed_for_each_package_and_their_texts_are_there() -> None:
    with tarfile.open(kit_programs.archive()) as archive:
        names = set(archive.getnames())
        listed = archive.extractfile("kit.json")
        assert listed
        listing = json.load(listed)
    assert listing["architecture"] == platform.machine()
    packages = {package["name"]: package for package in listing["packages"]}
    assert {"busybox-static", "libc6", "openssh-client", "openssh-server", "shellinabox"} <= packages.keys()
    assert re.match(r"1:\d+\.\d+p\d", packages["openssh-server"]["version"])
    assert "GPL-2" in packages["busybox-static"]["licences"]
    assert all(package["version"] and package["licences"] for package in packages.values())
    assert {f"licences/{name}" for name in packages} | {"licences/GPL-2"} <= names
