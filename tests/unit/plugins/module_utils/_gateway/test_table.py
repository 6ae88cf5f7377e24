"""The firewall table of a gateway, as text."""

from __future__ import annotations

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.model import Gateway
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.routing import render_gateway_table

GATEWAY = Gateway("door", "", 443, 31001, 32000)


def test_the_table_lists_the_ports_of_routed_sessions() -> None:
    text = render_gateway_table([31007, 31002], GATEWAY)
    assert (
        "\ntable inet backendai_gateway\ndelete table inet backendai_gateway\ntable inet backendai_gateway {\n" in text
    )
    assert text.index("delete table inet backendai_gateway") < text.index("elements = { 31002, 31007 }")
    assert "tcp dport 31001-32000 tcp dport != @ssh_ports ct state new counter drop" in text
    assert "elements" not in render_gateway_table([], GATEWAY)
