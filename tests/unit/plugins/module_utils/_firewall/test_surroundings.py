"""Facts of the audit, from tables of the kernel."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall import surroundings
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.isolation_policy import IsolationPolicy
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.ruleset import render
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.surroundings import (
    find_docker_listeners,
    read_exposure,
    read_zones,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError
from ansible_collections.backendai.cluster.plugins.module_utils._network import host as host_survey

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
PORT = f"{2375:04X}"


def entry(address: str, length: int, scope: str = "global") -> dict[str, Any]:
    family = "inet6" if ":" in address else "inet"
    return {"local": address, "prefixlen": length, "scope": scope, "family": family}


LINKS: list[dict[str, Any]] = [
    {"ifname": "lo", "mtu": 65536, "addr_info": [entry("127.0.0.1", 8, "host"), entry("::1", 128, "host")]},
    {
        "ifname": "eth0",
        "mtu": 1500,
        "addr_info": [entry("192.0.2.1", 24), entry("192.0.2.2", 24), entry("fe80::1", 64, "link")],
    },
    {"ifname": "eth1", "mtu": 1500, "addr_info": [entry("198.51.100.1", 24)]},
    {"ifname": "docker0", "mtu": 1500, "addr_info": [entry("172.17.0.1", 16), entry("fe80::3", 64, "link")]},
]


def line(address: str, state: str, inode: int) -> str:
    return f"   0: {address}:{PORT} 00000000:0000 {state} 0:0 0:0 0 0 0 {inode} 1\n"


def words(family: socket.AddressFamily, address: str) -> str:
    """Return an address in the format of the kernel: words in host byte order."""
    packed = socket.inet_pton(family, address)
    parts = [packed[start : start + 4] for start in range(0, len(packed), 4)]
    return "".join(f"{int.from_bytes(part, sys.byteorder):08X}" for part in parts)


@pytest.fixture
def processes(tmp_path: Path) -> Path:
    """Return a folder like ``/proc``, with a Docker process that has three sockets and another with one."""
    for pid, name, inodes in (("7", "dockerd", (70, 71, 72)), ("8", "sshd", (80,)), ("self", "dockerd", (80,))):
        folder = tmp_path / pid / "fd"
        folder.mkdir(parents=True)
        (folder.parent / "comm").write_text(f"{name}\n")
        (folder / "0").symlink_to("/dev/null")
        for inode in inodes:
            (folder / str(inode)).symlink_to(f"socket:[{inode}]")
    (tmp_path / "9").mkdir()
    (tmp_path / "net").mkdir()
    four, six = (words(socket.AF_INET, "127.0.0.1"), words(socket.AF_INET6, "fd00::1"))
    (tmp_path / "net" / "tcp").write_text(HEADER + line(four, "0A", 70) + line(four, "01", 71) + line(four, "0A", 80))
    (tmp_path / "net" / "tcp6").write_text(HEADER + line(six, "0A", 72))
    return tmp_path


def test_docker_listeners_are_found_by_socket_inodes(processes: Path) -> None:
    assert find_docker_listeners(processes) == [("127.0.0.1", 2375), ("fd00::1", 2375)]


def test_without_docker_or_ipv6_there_are_no_listeners(processes: Path) -> None:
    (processes / "net" / "tcp6").unlink()
    assert find_docker_listeners(processes) == [("127.0.0.1", 2375)]
    (processes / "7" / "comm").write_text("dockerd-rootless\n")
    assert find_docker_listeners(processes) == []


def test_an_exited_docker_process_has_no_sockets(processes: Path) -> None:
    for handle in (processes / "7" / "fd").iterdir():
        handle.unlink()
    (processes / "7" / "fd").rmdir()
    assert find_docker_listeners(processes) == []


def test_a_real_socket_of_this_host_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Path("/proc/self/comm").read_text().strip()
    monkeypatch.setattr(surroundings, "ENGINE", mine)
    with (
        socket.create_server(("127.0.0.1", 0)) as four,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as six,
    ):
        expected = {("127.0.0.1", four.getsockname()[1]), ("::1", six.getsockname()[1])}
        assert expected <= set(find_docker_listeners())
    assert not expected & set(find_docker_listeners())


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with two networks, and no rules."""

    def show(*command: str) -> list[dict[str, Any]]:
        return [{"dst": "default", "dev": "eth0"}] if "default" in command else LINKS

    for module in (surroundings, host_survey):
        monkeypatch.setattr(module, "show", show)
    monkeypatch.setattr(surroundings, "find_docker_listeners", lambda: [("0.0.0.0", 2375)])
    monkeypatch.setattr(surroundings, "_read_ruleset", dict)


@pytest.mark.usefixtures("host")
def test_facts_come_from_the_underlay_of_the_agent() -> None:
    around = read_exposure("")
    assert around.addresses == ("192.0.2.1", "192.0.2.2", "198.51.100.1")
    assert around.networks == ("192.0.2.0/24",)
    assert around.engine == (("0.0.0.0", 2375),)
    assert around.local_ipv6 == ("eth0",)
    assert around.filtered6 is False
    assert read_exposure("198.51.100.1").networks == ("198.51.100.0/24",)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    ("connection", "address"),
    [
        ("203.0.113.7 51234 192.0.2.2 22", "192.0.2.2"),
        ("fe80::7%eth0 51234 fe80::1%eth0 22", "fe80::1"),
        ("", ""),
    ],
)
def test_zones_have_the_address_of_this_connection_and_of_the_underlay(
    monkeypatch: pytest.MonkeyPatch, connection: str, address: str
) -> None:
    monkeypatch.setattr(surroundings, "ssh_connection", lambda: connection)
    zones = read_zones(["192.0.2.0/25", "192.0.2.128/25"], ["198.51.100.1"], "198.51.100.1")
    assert (zones.management, zones.compute) == (("192.0.2.0/24",), ("198.51.100.1/32",))
    assert (zones.ssh_address, zones.underlay_address) == (address, "198.51.100.1")
    assert zones.interfaces == {"eth0": ("192.0.2.1", "192.0.2.2"), "eth1": ("198.51.100.1",)}
    assert read_zones([], [], "").underlay_address == "192.0.2.1"
    assert read_zones([], [], "203.0.113.9").underlay_address == ""


@pytest.mark.usefixtures("host")
def test_networks_that_are_none_are_refused_with_their_variable() -> None:
    with pytest.raises(ValidationError) as refused:
        read_zones(["10.0.0.1/8"], ["compute"], "")
    assert str(refused.value).splitlines() == [
        (
            "agent_management_networks: '10.0.0.1/8' is a network with host bits: it must be the network's own address,"
            " such as 10.0.0.0/8."
        ),
        "agent_compute_networks: 'compute' must be an address or a network, such as 192.0.2.7 or 192.0.2.0/24.",
    ]


@pytest.mark.usefixtures("host")
def test_without_an_underlay_there_are_no_networks() -> None:
    assert read_exposure("203.0.113.9").networks == ()


@pytest.mark.parametrize(
    ("code", "printed", "expected"), [(0, json.dumps({"nftables": [1]}), {"nftables": [1]}), (1, "", {})]
)
def test_rules_are_read_from_nft(
    code: int, printed: str, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_a, **_k: subprocess.CompletedProcess([], code, printed, ""))
    assert surroundings._read_ruleset() == expected


def test_without_nft_there_are_no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert surroundings._read_ruleset() == {}


def test_the_audited_chain_is_in_the_ruleset_of_a_firewall() -> None:
    text = render(IsolationPolicy((), (), (), {}), Firewall(("192.0.2.0/24",)))
    assert f"    chain {surroundings.ENFORCING_CHAIN} {{\n" in text
