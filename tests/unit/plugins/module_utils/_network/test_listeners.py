"""The programs that listen on this host."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import processes
from ansible_collections.backendai.cluster.plugins.module_utils._network import listeners
from ansible_collections.backendai.cluster.plugins.module_utils._network.listeners import listening_programs

OWN = Path("/proc/self/comm").read_text().strip()


def test_a_listening_program_is_named_by_protocol_and_port() -> None:
    with socket.create_server(("", 0)) as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("", 0))
        programs = listening_programs()
        assert programs["tcp", tcp.getsockname()[1]] == OWN
        assert programs["udp", udp.getsockname()[1]] == OWN


def test_what_only_this_host_reaches_is_not_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert ("tcp", server.getsockname()[1]) not in listening_programs()


def test_a_socket_of_no_process_is_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "socket_programs", dict)
    with socket.create_server(("", 0)) as server:
        assert listening_programs()["tcp", server.getsockname()[1]] == "the kernel"


def test_the_name_of_a_program_is_one_line_whatever_it_calls_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1" / "fd").mkdir(parents=True)
    (tmp_path / "1" / "comm").write_bytes(b"a\n- {b}\x1b\xff\n")
    (tmp_path / "1" / "fd" / "3").symlink_to("socket:[17]")
    monkeypatch.setattr(processes, "PROC", tmp_path)
    assert processes.socket_programs() == {"17": r"a\n- {b}\x1b\ufffd"}


@pytest.mark.parametrize("order", [("systemd", "sshd"), ("sshd", "systemd")])
def test_a_socket_that_systemd_holds_for_a_service_is_the_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...]
) -> None:
    for pid, name in enumerate(order, 1):
        process = tmp_path / str(pid)
        (process / "fd").mkdir(parents=True)
        (process / "comm").write_text(f"{name}\n")
        (process / "fd" / "3").symlink_to("socket:[17]")
        (process / "fd" / "4").symlink_to("/dev/null")
    (tmp_path / "9").mkdir()
    monkeypatch.setattr(processes, "PROC", tmp_path)
    assert processes.socket_programs() == {"17": "sshd"}
