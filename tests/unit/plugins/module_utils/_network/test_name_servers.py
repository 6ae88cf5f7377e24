"""Tests for the name servers of containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import engine_settings
from ansible_collections.backendai.cluster.plugins.module_utils._network import name_servers as servers


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the files of a host, which has none of them."""
    monkeypatch.setattr(servers, "RESOLVER_FILES", (tmp_path / "resolv.conf", tmp_path / "systemd"))
    monkeypatch.setattr(engine_settings, "engine_arguments", lambda: [f"--config-file={tmp_path}/daemon.json"])
    return tmp_path


def test_host_without_name_servers_has_those_of_the_engine(host: Path) -> None:
    assert servers.name_servers() == ["8.8.4.4", "8.8.8.8"]
    (host / "resolv.conf").write_text("# nameserver 192.0.2.1\nsearch example.org\nnameserver\n")
    assert servers.name_servers() == ["8.8.4.4", "8.8.8.8"]


def test_name_servers_are_outside_ipv4_addresses_of_all_files(host: Path) -> None:
    (host / "resolv.conf").write_text("nameserver 127.0.0.53\nnameserver 2001:db8::1\nnameserver none\n")
    assert servers.name_servers() == []
    (host / "systemd").write_text("nameserver 192.0.2.53\nnameserver 192.0.2.52\n")
    assert servers.name_servers() == ["192.0.2.52", "192.0.2.53"]
    (host / "daemon.json").write_text('{"dns": ["198.51.100.53", "192.0.2.53"]}')
    assert servers.name_servers() == ["192.0.2.52", "192.0.2.53", "198.51.100.53"]


@pytest.mark.parametrize("text", ["{", "[]", '{"dns": 5}', "\udcff"])
def test_damaged_engine_configuration_names_none(host: Path, text: str) -> None:
    (host / "resolv.conf").write_text("nameserver 192.0.2.53\n")
    (host / "daemon.json").write_bytes(text.encode(errors="surrogateescape"))
    assert servers.name_servers() == ["192.0.2.53"]


def test_undecodable_resolver_file_names_none(host: Path) -> None:
    (host / "resolv.conf").write_bytes(b"nameserver 192.0.2.53\n\xff")
    assert servers.name_servers() == ["8.8.4.4", "8.8.8.8"]


def test_name_servers_of_the_engines_command_line_count(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (host / "resolv.conf").write_text("nameserver 192.0.2.53\n")
    arguments = ["dockerd", "--dns", "192.0.2.1", "--dns=10.0.0.1"]
    monkeypatch.setattr(engine_settings, "engine_arguments", lambda: arguments)
    assert servers.name_servers() == ["10.0.0.1", "192.0.2.1", "192.0.2.53"]
