"""Addresses and tunnel ports of a host."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._exposure import targets
from ansible_collections.backendai.cluster.plugins.module_utils._network import host


def entry(address: str, scope: str = "global") -> dict[str, str]:
    return {"local": address, "scope": scope, "family": "inet6" if ":" in address else "inet"}


LINKS: list[dict[str, Any]] = [
    {"ifname": "lo", "addr_info": [entry("127.0.0.1", "host"), entry("::1", "host")]},
    {"ifname": "eth0", "addr_info": [entry("192.0.2.1"), entry("169.254.0.3", "link"), entry("fe80::1", "link")]},
    {"ifname": "eth1", "addr_info": [entry("fd00::1"), entry("fe80::2", "link")]},
    {"ifname": "docker0", "addr_info": [entry("172.17.0.1"), entry("fe80::3", "link")]},
    {"ifname": "br-0123456789ab", "addr_info": [entry("172.19.0.1")]},
    {"ifname": "veth1", "addr_info": [entry("fe80::4", "link")]},
]


def test_host_addresses_exclude_those_behind_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (targets, host):
        monkeypatch.setattr(module, "show", lambda *_words: LINKS)
    own_list, behind = targets.read_host_addresses()
    assert own_list == ["192.0.2.1", "fd00::1", "fe80::1", "fe80::2"]
    assert behind == ["172.17.0.1", "172.19.0.1"]


def test_tunnel_ports_are_unique(monkeypatch: pytest.MonkeyPatch) -> None:
    links = [{"linkinfo": {"info_data": data}} for data in ({"port": 4790}, {"port": 4789}, {"port": 4789}, {})]
    monkeypatch.setattr(targets, "show", lambda *_words: links)
    assert targets.read_tunnel_ports() == [4789, 4790]
