"""Tests for the addresses of containers."""

from __future__ import annotations

from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._docker.addresses import (
    container_addresses,
    published_ports,
)


class Engine:
    """An engine with running containers that have these network endpoints."""

    def __init__(self, *endpoints: dict[str, dict[str, str]]) -> None:
        self._listed: list[dict[str, Any]] = [{"NetworkSettings": {"Networks": networks}} for networks in endpoints]

    def containers(self) -> list[dict[str, Any]]:
        return self._listed


def test_container_addresses_of_all_networks_and_both_families_are_listed() -> None:
    dual_stack = {"IPAddress": "172.18.0.2", "GlobalIPv6Address": "fd00::2"}
    engine: Any = Engine({"one": dual_stack, "two": {"IPAddress": "10.128.0.2"}}, {"host": {"IPAddress": ""}}, {})
    assert container_addresses(engine) == ["10.128.0.2", "172.18.0.2", "fd00::2"]


def test_published_ports_have_the_name_of_their_container() -> None:
    engine: Any = Engine({}, {})
    web, other = engine.containers()
    web |= {
        "Names": ["/web"],
        "Ports": [
            {"IP": "0.0.0.0", "PrivatePort": 80, "PublicPort": 8080, "Type": "tcp"},
            {"IP": "::", "PrivatePort": 80, "PublicPort": 8080, "Type": "tcp"},
            {"PrivatePort": 443, "Type": "tcp"},
        ],
    }
    other |= {"Names": ["/other"], "Ports": None}
    assert published_ports(engine) == {("tcp", 8080): "container web"}
