# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The firewall table of a gateway: of the ports for SSH, only those of living sessions are there for others."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.table import Table
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.model import Gateway

GATEWAYS_TABLE = Table("backendai_gateway", "provision_gateways")


def table_of(ports: Iterable[int], gateway: Gateway) -> str:
    """Return the table that lets new connections in at these ports of the gateway's range alone; a file that replaces
    the table atomically."""
    listed = ", ".join(str(port) for port in sorted(ports))
    elements = f"\n        elements = {{ {listed} }}" if listed else ""
    span = f"{gateway.first_ssh_port}-{gateway.last_ssh_port}"
    return f"""\
# Written by the module backendai.cluster.gateway_routes.
{GATEWAYS_TABLE}
delete {GATEWAYS_TABLE}
{GATEWAYS_TABLE} {{
    set ssh_ports {{
        type inet_service{elements}
    }}
    chain input {{
        type filter hook input priority filter; policy accept;
        # Connections of a session that has ended are not cut here: they end with it.
        tcp dport {span} tcp dport != @ssh_ports ct state new counter drop
    }}
}}
"""
