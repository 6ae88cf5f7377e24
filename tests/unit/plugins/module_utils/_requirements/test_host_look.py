"""A host is looked at with its own programs, and nothing is changed."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import installation
from ansible_collections.backendai.cluster.plugins.module_utils._host.packages import Package, name_of, read_packages
from ansible_collections.backendai.cluster.plugins.module_utils._requirements import engine_look, host_look
from ansible_collections.backendai.cluster.plugins.module_utils._requirements.engine_look import (
    Engine,
    ask_engine,
    find_programs,
)
from ansible_collections.backendai.cluster.plugins.module_utils._requirements.requirements import Family, Wanted

POLICY = """\
docker.io:
  Installed: (none)
  Candidate: 26.1.5+dfsg1-9
  Version table:
     26.1.5+dfsg1-9 500
        500 http://mirror.example.org/debian trixie/main amd64 Packages
nftables:
  Installed: 1.1.3-1
  Candidate: 1.1.3-1
  Version table:
docker-ce:
  Installed: (none)
  Candidate: (none)
  Version table:
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Return what writes a program that only this test has, before all others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def write(name: str, script: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return write


def test_apt_says_which_packages_exist(program: Callable[[str, str], Path], tmp_path: Path) -> None:
    (tmp_path / "policy").write_text(POLICY)
    program("apt-cache", f'test "$LC_ALL$1" = Cpolicy && cat {tmp_path}/policy')
    assert read_packages("apt", ["docker-ce", "docker.io", "nftables", "unknown"]) == {
        "docker.io": Package("", "26.1.5+dfsg1-9"),
        "nftables": Package("1.1.3-1", "1.1.3-1"),
    }
    assert read_packages("apt", []) == {}


def test_dnf_and_rpm_say_which_packages_exist(program: Callable[[str, str], Path]) -> None:
    program("rpm", 'echo "nftables 1.0.9"; echo "package moby-engine is not installed"; exit 1')
    program("dnf", 'echo "nftables 1.0.9"; echo; echo "moby-engine 28.0.3"; echo; echo "moby-engine 28.0.4"')
    assert read_packages("dnf", ["moby-engine", "nftables", "shellinabox"]) == {
        "moby-engine": Package("", "28.0.4"),
        "nftables": Package("1.0.9", "1.0.9"),
    }


@pytest.mark.parametrize("wanted", ["docker.io", "docker.io=26.1*", "docker.io/stable"])
def test_the_name_of_a_package_has_no_version(wanted: str) -> None:
    assert name_of(wanted) == "docker.io"


def test_a_module_is_there_if_it_is_loaded_or_can_be(program: Callable[[str, str], Path], tmp_path: Path) -> None:
    program("modprobe", 'test "$1 $2 $3" = "--dry-run --quiet macvlan"')
    program("unshare", "exit 1")
    (tmp_path / "sys/module/overlay").mkdir(parents=True)
    (tmp_path / "proc/sys/net/bridge").mkdir(parents=True)
    names = ["overlay", "macvlan", "br_netfilter", "vxlan"]
    assert host_look.find_missing_modules(names, tmp_path) == ("vxlan",)


def test_a_module_that_is_built_in_is_found_by_an_interface_in_a_scratch_namespace(
    program: Callable[[str, str], Path], tmp_path: Path
) -> None:
    program("modprobe", "exit 1")
    program("unshare", f'echo "$@" >> {tmp_path}/tried')
    assert host_look.find_missing_modules(["macvlan", "vxlan", "overlay"], tmp_path) == ("overlay",)
    tried = (tmp_path / "tried").read_text().splitlines()
    assert [line.split()[:3] for line in tried] == [["--net", "sh", "-c"]] * 2


def test_nftables_that_does_not_reach_the_kernel_says_why(program: Callable[[str, str], Path]) -> None:
    program("nft", 'echo "netlink: Error: cache initialization failed: Protocol not supported" >&2; exit 1')
    assert host_look.read_nft_error() == "netlink: Error: cache initialization failed: Protocol not supported"
    program("nft", "exit 0")
    assert host_look.read_nft_error() == ""


def test_without_nftables_its_module_is_looked_for(
    program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_look.shutil, "which", lambda _name: None)
    program("modprobe", 'test "$1" = --version')
    monkeypatch.setattr(host_look, "_has_module", lambda _name, _root: False)
    assert host_look.read_nft_error() == "there is no module nf_tables"
    program("modprobe", "exit 127")
    assert host_look.read_nft_error() == ""


@pytest.mark.parametrize(
    ("name", "printed", "version"),
    [
        ("nft", "nftables v0.9.8 (E.D.S.)", "0.9.8"),
        ("ip", "ip utility, iproute2-5.10.0, libbpf 0.3.0", "5.10.0"),
        ("ip", "ip utility, iproute2-ss190708", "ss190708"),
        ("haproxy", "HA-Proxy version 2.2.9-2+deb11u6 2023/08/11 - https://haproxy.org/", "2.2.9"),
        ("haproxy", "HAProxy version 2.6.12-1+deb12u1 2023/12/16 - https://haproxy.org/", "2.6.12"),
        ("modprobe", "kmod version 30", "30"),
        ("sudo", "sudo-rs 0.2.8", "0.2.8"),
        ("sysctl", "sysctl from procps-ng 4.0.2", "4.0.2"),
        ("wg", "wireguard-tools v1.0.20210914 - https://git.zx2c4.com/wireguard-tools/", "1.0.20210914"),
    ],
)
def test_the_version_of_a_program_is_read(
    program: Callable[[str, str], Path], name: str, printed: str, version: str
) -> None:
    program("modprobe", "exit 0")
    program(name, f"echo '{printed}'")
    assert host_look.look(Wanted("gateway", Family("Debian 13"))).programs[name] == version


def test_the_interpreter_of_a_manager_is_run(program: Callable[[str, str], Path], tmp_path: Path) -> None:
    family = Family("Debian 13", python="/usr/bin/python3")
    found = host_look.look(Wanted("manager", family, manager_python=sys.executable))
    assert (found.manager_python, found.manager_venv) == (sys.version_info[:2], "")
    broken = program("python3.12", 'test "$3" = "import ensurepip, venv" || { echo 3 12; exit 0; }; echo "No venv" >&2')
    found = host_look.look(Wanted("manager", family, manager_python=str(broken)))
    assert (found.manager_python, found.manager_venv) == ((3, 12), "No venv")
    assert host_look.look(Wanted("manager", family, manager_python="/nowhere/python")).manager_python == ()
    # What that of the distribution lacks comes with the packages, whatever its name is.
    (tmp_path / "python3").symlink_to(broken)
    same = Wanted("manager", family._replace(python=str(tmp_path / "python3")), manager_python=str(broken))
    assert host_look.look(same).manager_venv == ""


def test_the_programs_of_engines_are_found_with_their_packages(
    program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    snap = tmp_path / "snap"
    assert find_programs(snap) == ()
    path = program("dockerd", "exit 0")
    monkeypatch.setattr(installation, "owner_of", lambda _name: "docker-ce")
    snap.touch()
    assert find_programs(snap) == ((str(path), "docker-ce"), (str(snap), ""))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Return what starts an engine that answers with these data, a text as it is, and returns its address."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "engine"))
    listener.listen()
    threads: list[threading.Thread] = []

    def start(version: Any, info: Any = None, status: str = "200 OK") -> str:
        answers = {"/_ping": "OK", "/v1.47/version": version, "/v1.47/info": info or {}}

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _address = listener.accept()
                    with connection:
                        answer = answers[connection.recv(65536).split()[1].decode()]
                        body = answer if isinstance(answer, str) else json.dumps(answer)
                        connection.sendall(f"HTTP/1.1 {status}\r\nApi-Version: 1.47\r\n\r\n{body}".encode())

        threads.append(threading.Thread(target=serve, daemon=True))
        threads[-1].start()
        return f"unix://{tmp_path}/engine"

    with listener:
        yield start
        # It wakes the thread, which would accept connections of another test later.
        listener.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(10)


def test_an_engine_says_its_version_and_its_limits(engine: Callable[..., str]) -> None:
    parts = [{"Name": "Engine"}, {"Name": "containerd"}]
    version = {"Version": "27.3.1", "MinAPIVersion": "1.24", "Components": parts}
    found = ask_engine(engine(version, {"SecurityOptions": ["name=userns"]}))
    assert found == Engine("27.3.1", "1.24", ("name=userns",))


def test_podman_is_no_engine(engine: Callable[..., str]) -> None:
    found = ask_engine(engine({"Version": "5.4.2", "Components": [{"Name": "Podman Engine"}]}))
    assert found is not None
    assert found.is_podman


@pytest.mark.parametrize(("answer", "status"), [("{", "200 OK"), ("[]", "200 OK"), ("{}", "500 No"), ("", "")])
def test_what_is_no_engine_does_not_answer(engine: Callable[..., str], answer: str, status: str) -> None:
    assert ask_engine(engine(answer, status=status)) is None


def test_no_engine_and_one_of_another_host_do_not_answer(tmp_path: Path) -> None:
    assert ask_engine(f"unix://{tmp_path}/nothing") is None
    assert ask_engine("tcp://127.0.0.1:1") is None


def test_a_look_at_an_agent_has_its_engine(
    program: Callable[[str, str], Path], engine: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_look, "find_programs", lambda: ())
    monkeypatch.setattr(host_look, "find_programs", lambda: (engine_look.Program("/usr/bin/dockerd", "docker-ce"),))
    program("apt-cache", 'shift; for name; do printf "%s:\\n  Installed: 1\\n  Candidate: 1\\n" "$name"; done')
    program("modprobe", "exit 0")
    wanted = Wanted(
        "agent",
        Family("Debian 13", "apt", python=sys.executable),
        ["nftables"],
        engines={"distribution": ["docker.io"]},
        docker_host=engine({"Version": "27.3.1"}),
    )
    found = host_look.look(wanted, "present")
    assert {*found.packages} == {"nftables", "docker.io", "docker-ce"}
    assert (found.engine, found.kept_engine, found.is_family_python) == (
        Engine("27.3.1"),
        "present",
        True,
    )
    assert found.interpreter == sys.executable
    assert os.path.realpath(found.interpreter) == os.path.realpath(sys.executable)


@pytest.mark.parametrize(
    ("role", "enforced", "off", "confined"),
    [
        ("gateway", True, True, True),
        ("gateway", True, False, False),
        ("gateway", False, True, False),
        ("agent", True, True, False),
    ],
)
def test_haproxy_is_confined_on_a_gateway_whose_selinux_has_its_switch_off(
    monkeypatch: pytest.MonkeyPatch, role: str, enforced: bool, off: bool, confined: bool
) -> None:
    monkeypatch.setattr(host_look, "is_enforced", lambda: enforced)
    monkeypatch.setattr(host_look, "is_off", lambda switch: off and switch == "haproxy_connect_any")
    assert host_look.look(Wanted(role, Family("Fedora 42"))).is_haproxy_confined is confined


@pytest.mark.parametrize(
    ("role", "switch", "option", "lacks"),
    [
        ("gateway", "haproxy_connect_any", "", True),
        ("gateway", "", "", False),
        ("agent", "haproxy_connect_any", "name=seccomp", False),
        ("agent", "", "name=selinux", True),
    ],
)
def test_semanage_is_lacking_where_selinux_has_to_know_our_folders(
    program: Callable[[str, str], Path],
    monkeypatch: pytest.MonkeyPatch,
    role: str,
    switch: str,
    option: str,
    lacks: bool,
) -> None:
    monkeypatch.setattr(host_look, "has_switch", lambda name: name == switch)
    monkeypatch.setattr(host_look, "ask_engine", lambda _address: Engine("27.3.1", options=(option,)))
    wanted = Wanted(role, Family("Fedora 42"), engines={"present": []} if role == "agent" else {})
    assert not host_look.look(wanted).lacks_semanage
    program("selinuxenabled", "exit 0")
    assert host_look.look(wanted).lacks_semanage is lacks
    program("semanage", "exit 0")
    assert not host_look.look(wanted).lacks_semanage


def test_the_python_of_an_agent_is_run_to_see_whether_it_has_the_sdk(
    program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_look, "find_missing", lambda: ["sshd"])
    monkeypatch.setattr(host_look.platform, "machine", lambda: "riscv64")
    program("modprobe", "exit 0")
    wanted = Wanted("agent", Family("Plan 9"), kit={"path": "host"})
    for script, found in {
        'test "$3" = "import docker" || echo 3 9': ((3, 9), True),
        'test "$3" != "import docker" && echo 3 12': ((3, 12), False),
        "exit 127": ((), False),
    }.items():
        python = program("python", script)
        host = host_look.look(wanted._replace(agent_python=str(python)))
        assert (host.interpreter, host.python, host.has_sdk) == (str(python), *found)
        assert (host.machine, host.missing_programs) == ("riscv64", ["sshd"])
    own = host_look.look(wanted._replace(kit={}))
    assert (own.interpreter, own.python, own.missing_programs) == (sys.executable, sys.version_info[:2], ())


def test_a_virtual_environment_has_not_the_packages_of_the_python_that_it_links_to(tmp_path: Path) -> None:
    venv.create(tmp_path, symlinks=True, with_pip=False)
    base = os.path.realpath(tmp_path / "bin/python")
    assert not host_look.has_packages_of(f"{tmp_path}/bin/python", base)
    (tmp_path / "python").symlink_to(base)
    assert host_look.has_packages_of(f"{tmp_path}/python", base)


@pytest.mark.parametrize(("install", "go", "missing"), [(False, 1, ("wireguard",)), (False, 0, ()), (True, 1, ())])
def test_wireguard_is_looked_for_where_nothing_is_installed_that_stands_for_it(
    program: Callable[[str, str], Path], install: bool, go: int, missing: tuple[str, ...]
) -> None:
    program("modprobe", '[ "$3" != wireguard ]')
    if not go:
        program("wireguard-go", "exit 0")
    wanted = Wanted("agent", Family("Plan 9"), install=install, features=("wireguard",))
    assert host_look.look(wanted).missing_modules == missing
