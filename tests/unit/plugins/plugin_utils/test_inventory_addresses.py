"""The addresses of inventory hosts: from a variable, from Ansible, or resolved."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError
from ansible_collections.backendai.cluster.plugins.plugin_utils.inventory_addresses import addresses_of

KNOWN = {
    "dual": ["192.0.2.9", "2001:db8::9"],
    "agent1": ["192.0.2.1"],
    "here": ["127.0.0.1", "::1", "192.0.2.8"],
    "near": ["fe80::1%eth0"],
}


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Resolve a few names, and return those that are looked up."""
    lookups: list[str] = []

    def look_up(name: str, port: None, **hints: int) -> list[Any]:
        assert (port, hints) == (None, {"type": socket.SOCK_STREAM})
        lookups.append(name)
        if name[0].isdigit() or ":" in name:
            return [(0, 1, 6, "", (name, 0))]
        if name not in KNOWN:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 1, 6, "", (address, 0)) for address in KNOWN[name]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return lookups


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"gateway_source_address": "198.51.100.7", "ansible_host": "203.0.113.7"}, ["198.51.100.7"]),
        ({"ansible_host": "203.0.113.7"}, ["203.0.113.7"]),
        ({"gateway_source_address": "", "ansible_host": "203.0.113.7"}, ["203.0.113.7"]),
        ({"gateway_source_address": None, "ansible_host": ""}, ["192.0.2.1"]),
        ({"ansible_host": "dual"}, ["192.0.2.9", "2001:db8::9"]),
        ({}, ["192.0.2.1"]),
        ({"ansible_host": "fe80::1%eth0"}, ["fe80::1"]),
        ({"ansible_host": "near"}, ["fe80::1"]),
    ],
    ids=["variable", "ansible_host", "empty", "both empty", "a name", "its own name", "scoped", "a scoped name"],
)
def test_the_address_of_a_host_is_what_it_says_or_what_its_name_has(
    variables: dict[str, Any], expected: list[str]
) -> None:
    assert addresses_of({"agent1": variables}, ["agent1"], "gateway_source_address") == expected


def test_without_a_variable_ansibles_own_is_asked(names: list[str]) -> None:
    assert addresses_of({"agent1": {"": "198.51.100.9", "ansible_host": "dual"}}, ["agent1"], "x") == KNOWN["dual"]
    assert addresses_of({"agent1": {"ansible_host": "dual"}}, ["agent1"]) == KNOWN["dual"]
    assert names == ["dual", "dual"]


def test_each_address_is_there_once_in_the_order_of_the_hosts() -> None:
    hostvars = {"a": {"ansible_host": "dual"}, "b": {"ansible_host": "192.0.2.9"}, "agent1": {}}
    assert addresses_of(hostvars, ["agent1", "b", "a"]) == ["192.0.2.1", "192.0.2.9", "2001:db8::9"]
    assert addresses_of(hostvars, []) == []


def test_loopback_addresses_are_omitted() -> None:
    assert addresses_of({"localhost": {"ansible_host": "here"}}, ["localhost"]) == ["192.0.2.8"]
    assert addresses_of({"localhost": {"ansible_host": "127.0.0.53"}}, ["localhost"]) == []


def test_a_name_without_an_address_is_one_sentence() -> None:
    with pytest.raises(ValidationError) as refused:
        addresses_of({"agent1": {}, "agent2": {"ansible_host": "nowhere"}}, ["agent1", "agent2"])
    assert str(refused.value) == "agent2: 'nowhere' has no address: Name or service not known."


@pytest.mark.parametrize("name", ["a..b", "x" * 64])
def test_what_is_no_name_at_all_is_one_sentence(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.undo()
    with pytest.raises(ValidationError) as refused:
        addresses_of({name: {}}, [name])
    assert str(refused.value) == f"{name}: {name!r} has no address: it is not a host name."
