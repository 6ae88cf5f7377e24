# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The firewall table of a gateway: of the ports for SSH, only those of living sessions are there for others.

What is wanted is loaded into a network namespace of its own and listed there. So ``nft`` itself says how it looks,
whatever its version.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Sequence

from ansible_collections.backendai.cluster.plugins.module_utils._core.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._core.gateway import Gateway
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.fault import GatewayFault

TABLE = "backendai_gateway"

_LIST = ["nft", "--stateless", "list", "table", "inet", TABLE]
_LOAD = ["nft", "--file", "-"]


def table_of(ports: Iterable[int], gateway: Gateway) -> str:
    """Return the table that lets new connections in at these ports of the gateway's range alone; a file that replaces
    the table atomically."""
    listed = ", ".join(str(port) for port in sorted(ports))
    elements = f"\n        elements = {{ {listed} }}" if listed else ""
    span = f"{gateway.first_ssh_port}-{gateway.last_ssh_port}"
    return f"""\
# Written by the module backendai.cluster.gateway_routes.
table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
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


def plan_table(wanted: str) -> Change | None:
    """Return how this host's table differs from the text ``wanted``, ``None`` where it does not; may raise
    GatewayFault."""
    found, due = (
        _found(),
        _listed(_run(["unshare", "--net", "sh", "-c", f"{' '.join(_LOAD)} && {' '.join(_LIST)}"], wanted)),
    )
    if found == due:
        return None
    before, after = [line for line in found if line not in due], [line for line in due if line not in found]
    return Change(f"firewall table inet {TABLE}", "; ".join(before) or None, "; ".join(after) or None)


def apply_table(wanted: str) -> None:
    """Replace the table by the text ``wanted``; other tables stay. Raises :class:`GatewayFault`."""
    _listed(_run(_LOAD, wanted))


def _found() -> list[str]:
    done = _run(_LIST)
    if done.returncode and "No such file or directory" in done.stderr:
        return []
    return _listed(done)


def _listed(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the lines of a listing, the elements of sets one by one and sorted; raise where ``nft`` failed."""
    if done.returncode:
        raise GatewayFault(f"nft: {' '.join(done.stderr.split())}")
    lines: list[str] = []
    for line in re.sub(r",\s*\n\s*", ", ", done.stdout).splitlines():
        text = line.strip()
        if text.startswith("elements = {"):
            numbers = sorted(text[len("elements = {") : -1].strip().split(", "), key=int)
            lines += [f"port {number}" for number in numbers]
        else:
            lines.append(text)
    return lines


def _run(command: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
        )
    except FileNotFoundError as error:
        missing = f"{error.filename} is not installed on this host: run backendai.cluster.provision_gateways on it."
        raise GatewayFault(missing) from error
