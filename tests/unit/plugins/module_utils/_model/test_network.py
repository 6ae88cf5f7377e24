"""The underlay of an agent: with WireGuard its address is that of its key."""

from __future__ import annotations

import base64
import dataclasses
import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.network import (
    INNER_NETWORK,
    Underlay,
    inner_address,
)
from tests.unit.builders import encrypted_underlay, public_key

KEY = public_key(1)
PLAIN = Underlay("192.0.2.1", "eth0", 1500)
ENCRYPTED = encrypted_underlay(1)


@given(st.sets(st.binary(min_size=32, max_size=32), min_size=2, max_size=8))
def test_every_key_has_an_address_of_its_own(keys: set[bytes]) -> None:
    addresses = {inner_address(base64.b64encode(key).decode()) for key in keys}
    assert len(addresses) == len(keys)
    assert all(ipaddress.IPv6Address(address) in INNER_NETWORK for address in addresses)


def test_the_address_of_a_key_never_changes() -> None:
    assert inner_address(KEY) == "fd62:6169:0:72cd:6e84:22c4:7fb:6d09"


@pytest.mark.parametrize("text", ["", "not base64!", "é", "c2hvcnQ=", f"{KEY}\n", f"{KEY[:-2]}F="])
def test_invalid_key_has_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"^its public key is not one of WireGuard$"):
        inner_address(text)


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1"])
def test_an_encrypted_underlay_has_the_address_of_its_key_and_an_endpoint(host: str) -> None:
    assert (encrypted_underlay(1, host).address, encrypted_underlay(1, host).host) == (inner_address(KEY), host)


@pytest.mark.parametrize(
    "changes",
    [
        {"address": encrypted_underlay(2).address},
        {"address": ENCRYPTED.address.upper()},
        {"address": "192.0.2.1"},
        {"public_key": public_key(2)},
        {"public_key": "remove"},
        {"public_key": ""},
        {"public_key": "", "endpoint": ""},
    ],
)
def test_the_address_of_a_key_is_no_other_and_no_address_without_that_key(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^its (address|public key) "):
        dataclasses.replace(ENCRYPTED, **changes)


@pytest.mark.parametrize(
    "host", ["192.0.2.1", "[2001:db8::1]", "here", "2001:db8::1", "[192.0.2.1]", "[fe80::1%eth0]", ""]
)
@pytest.mark.parametrize("port", ["1", "51820", "65535", "0", "65536", "051820", "-1", "1 ", "1\n", "", "\u0661"])
def test_an_endpoint_is_an_address_and_a_port(host: str, port: str) -> None:
    valid = host in ("192.0.2.1", "[2001:db8::1]") and port in ("1", "51820", "65535")
    if valid:
        assert dataclasses.replace(ENCRYPTED, endpoint=f"{host}:{port}").host == host.strip("[]")
        return
    with pytest.raises(ValueError, match=r"^its endpoint must be an IP address and a port$"):
        dataclasses.replace(ENCRYPTED, endpoint=f"{host}:{port}")


@pytest.mark.parametrize(
    "changes",
    [
        {"address": ""},
        {"address": "here"},
        {"address": "fe80::1%eth0"},
        {"address": "FD62:6169:0::1"},
        {"endpoint": "192.0.2.1:51820"},
    ],
)
def test_an_underlay_without_encryption_has_an_ordinary_address_and_no_endpoint(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^its address "):
        dataclasses.replace(PLAIN, **changes)
