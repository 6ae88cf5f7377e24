"""Which packages may go from a host."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import installation

#: What needs a package, directly or not, on the host of these tests.
NEEDED_BY = {"runc": {"docker.io"}, "docker.io": {"compose"}, "libc-extra": {"tool"}}


def closure(packages: set[str]) -> set[str]:
    """Return packages with all that need them."""
    more = packages.union(*(NEEDED_BY.get(package, set()) for package in packages))
    return more if more == packages else closure(more)


@pytest.fixture(autouse=True)
def apt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer as apt-get does that simulates a removal."""

    def run(*command: str) -> str:
        if command == ("passwd", "--status", "root"):
            return "root L 2026-01-01 0 99999 7 -1\n"
        if command == ("apt-mark", "showauto"):
            return "runc\nlibc6:i386\n"
        # Another apt may run: this one waits for it, as Ansible's does.
        assert command[:4] == ("apt-get", "--quiet", "--assume-yes", "--option=DPkg::Lock::Timeout=600")
        assert command[4:6] == ("--simulate", "purge")
        return "".join(f"Purg {name}:amd64 [1.0]\n" for name in sorted(closure({*command[6:]})))

    monkeypatch.setattr(installation, "_run", run)


def test_packages_that_nothing_else_needs_may_go() -> None:
    assert installation.keep_needed({"docker.io", "runc", "compose", "less"}, ()) == {}


def test_what_a_package_of_the_operator_needs_stays_and_so_does_what_that_needs() -> None:
    kept = installation.keep_needed({"docker.io", "runc", "less"}, ())
    assert kept == {"docker.io": ["compose"], "runc": ["compose"]}


def test_a_protected_package_stays_with_what_it_needs() -> None:
    kept = installation.keep_needed({"docker.io", "runc", "compose", "less"}, {"docker.io"})
    assert kept == {"docker.io": ["docker.io"], "runc": ["docker.io"]}


def test_no_package_is_no_question() -> None:
    assert installation.keep_needed(frozenset(), ()) == {}


def test_what_apt_and_passwd_say_is_read() -> None:
    assert installation.read_automatic() == {"runc", "libc6"}
    assert installation.root_is_locked()


@pytest.fixture
def dockerd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the program of an engine of no package, which is on this host."""
    path = tmp_path / "dockerd"
    monkeypatch.setattr(shutil, "which", lambda _name: str(path))
    return path


def test_the_package_of_a_program_is_that_of_the_file_itself(dockerd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = dockerd.with_name("dockerd-1")
    dockerd.symlink_to(target)

    def search(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        found = command == ["dpkg-query", "--search", str(target)]
        return subprocess.CompletedProcess(command, 0 if found else 1, f"docker-ce: {target}\n" if found else "")

    monkeypatch.setattr(subprocess, "run", search)
    assert installation.owner_of("dockerd") == "docker-ce"


def test_a_host_with_rpm_says_what_is_installed_and_of_which_package_a_program_is(
    dockerd: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    listings = {"rpm": "installed bash\ninstalled nftables\n"}
    monkeypatch.setattr(installation, "_DPKG_STATUS", tmp_path / "status")
    monkeypatch.setattr(installation, "_run", lambda *command: listings[command[0]])

    def query(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        assert command == ["rpm", "--query", "--file", "--queryformat", "%{NAME}:", str(dockerd)]
        return subprocess.CompletedProcess(command, 0, "docker-ce:")

    monkeypatch.setattr(subprocess, "run", query)
    monkeypatch.setattr(shutil, "which", lambda name: str(dockerd) if name == "dockerd" else f"/usr/bin/{name}")
    assert installation.uses_rpm()
    assert installation.read_installed().packages == {"bash", "nftables"}
    assert installation.read_automatic() == frozenset()
    assert installation.owner_of("dockerd") == "docker-ce"
    (tmp_path / "status").touch()
    assert not installation.uses_rpm()


def test_a_host_without_a_known_package_manager_has_no_packages_and_all_users(
    dockerd: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(installation, "_DPKG_STATUS", tmp_path / "status")
    monkeypatch.setattr(shutil, "which", lambda name: str(dockerd) if name == "dockerd" else None)
    installed = installation.read_installed()
    assert installed.packages == frozenset()
    assert "root" in installed.users & installed.groups
    assert installation.read_automatic() == frozenset()
    assert installation.owner_of("dockerd") == ""
