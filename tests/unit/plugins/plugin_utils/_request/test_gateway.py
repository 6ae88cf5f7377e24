"""The variables of a gateway, and its host names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.model import Gateway
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.gateway import OPTIONS, parse_gateway

DEFAULTS = yaml.safe_load((Path(__file__).parents[5] / "roles/gateway/defaults/main.yml").read_text())


def parsed(**changes: Any) -> Gateway:
    """Return the gateway of these variables, which have no prefix."""
    return parse_gateway({**DEFAULTS, **{f"gateway_{key}": value for key, value in changes.items()}}, "gateway1")


def test_the_defaults_of_the_role_are_taken() -> None:
    assert parsed() == Gateway("gateway1", "", 443, 31001, 32000)


def test_every_option_of_the_role_and_the_group_is_known() -> None:
    assert {f"gateway_{option}" for option in OPTIONS} == {*DEFAULTS, "gateway_group"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"hostname": "Door.example.org"}, Gateway("door.example.org", "", 443, 31001, 32000)),
        ({"hostname": "2001:db8::1"}, Gateway("2001:db8::1", "", 443, 31001, 32000)),
        ({"domain": "apps.example.org"}, Gateway("gateway1", "apps.example.org", 443, 31001, 32000)),
        ({"https_port": "8443", "ssh_ports": "2200-2200"}, Gateway("gateway1", "", 8443, 2200, 2200)),
        ({"ssh_ports": "20000-29999"}, Gateway("gateway1", "", 443, 20000, 29999)),
        ({"address": "2001:db8::1"}, Gateway("gateway1", "", 443, 31001, 32000)),
        ({"domain": "a.b", "path_links": "False"}, Gateway("gateway1", "a.b", 443, 31001, 32000, path_links=False)),
        ({"log_all_requests": "True"}, Gateway("gateway1", "", 443, 31001, 32000)),
        ({"frame_ancestors": "https://a.b:8443 https://c.d"}, Gateway("gateway1", "", 443, 31001, 32000)),
    ],
)
def test_given_options_are_used(changes: dict[str, Any], expected: Gateway) -> None:
    assert parsed(**changes) == expected


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"adress": "x"}, "gateway_adress is not an option of a gateway; allowed are gateway_address, "),
        ({"address": "here"}, "gateway_address: 'here' must be an IPv4 or IPv6 address."),
        ({"address": "fe80::1%eth0"}, "gateway_address: 'fe80::1%eth0' must be an IPv4 or IPv6 address."),
        ({"hostname": "a b"}, "gateway_hostname: 'a b' must be a host name or an address."),
        ({"domain": "192.0.2.7/x"}, "gateway_domain: '192.0.2.7/x' must be a host name."),
        ({"https_port": 0}, "gateway_https_port: 0 must be a whole number from 1 to 65535."),
        ({"https_port": 31500}, "gateway_https_port: 31500 is one of gateway_ssh_ports, 31001-32000."),
        ({"ssh_ports": "80-90"}, "gateway_ssh_ports: '80-90' must be a range within 1024-65535, such as 31001-32000."),
        ({"ssh_ports": "2000-1999"}, "gateway_ssh_ports: '2000-1999' must be a range within 1024-65535"),
        ({"path_links": "no way"}, "gateway_path_links: 'no way' must be one of true, false."),
        ({"log_all_requests": "some"}, "gateway_log_all_requests: 'some' must be one of true, false."),
        ({"path_links": False}, "gateway_path_links: false requires gateway_domain, or no app has a link."),
        (
            {"frame_ancestors": "https://a.b; sandbox"},
            "gateway_frame_ancestors: 'https://a.b; sandbox' must be origins such as https://portal.example.org.",
        ),
        ({"ssh_ports": ""}, "gateway_ssh_ports: '' must be a line of text."),
        ({"ssh_ports": "20000-30000"}, "gateway_ssh_ports: '20000-30000' must not have more than 10000 ports."),
        ({"max_connections": 99}, "gateway_max_connections: 99 must be a whole number from 100 to 1000000."),
        ({"source_connections": 0}, "gateway_source_connections: 0 must be a whole number from 1 to 250000."),
        ({"source_rate": "fast"}, "gateway_source_rate: 'fast' must be a whole number from 1 to 100000."),
        ({"source_ssh_connections": -1}, "gateway_source_ssh_connections: -1 must be a whole number from 1 to 250000."),
        ({"source_ssh_rate": None}, "gateway_source_ssh_rate is required."),
        (
            {"state_path": "var/x"},
            "gateway_state_path: 'var/x' must be an absolute path of letters, digits and . _ @ + -.",
        ),
        ({"state_path": "/var/../x"}, "gateway_state_path: '/var/../x' must be an absolute path"),
        ({"certificate": "a.pem"}, "gateway_certificate_key is required with gateway_certificate."),
        ({"certificate_key": "a.key"}, "gateway_certificate is required with gateway_certificate_key."),
    ],
)
def test_each_invalid_option_has_one_message(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        parsed(**changes)
    assert str(refusal.value).startswith(sentence)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("gateway", "authority"),
    [
        (Gateway("door.example.org", "", 443, 1, 2), "door.example.org"),
        (Gateway("door.example.org", "", 8443, 1, 2), "door.example.org:8443"),
        (Gateway("2001:db8::1", "", 443, 1, 2), "[2001:db8::1]"),
        (Gateway("2001:db8::1", "", 8443, 1, 2), "[2001:db8::1]:8443"),
    ],
)
def test_urls_contain_a_nonstandard_port(gateway: Gateway, authority: str) -> None:
    assert gateway.authority() == authority
