"""What docker, nft, ip, bridge and curl say on hosts; nothing here reads a record of the collection."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from tests.integration.laboratory import AGENTS, run_on, run_on_all

#: The state of links, forwarding entries and rules, without counters; `sort`, since kernels list sets in any order.
NETWORK = """
for table in 'inet backendai' 'bridge backendai'; do nft --stateless list table $table | tr ',' '\\n' | sort; done
ip -oneline link show | cut -d ' ' -f 2 | sort; bridge fdb show | grep -w dst | sort; ip neigh show nud permanent | sort
"""
#: How long curl waits for an answer, in seconds: packets that are dropped have none.
PATIENCE = 5

Container = Mapping[str, Any]


def containers(name: str) -> dict[str, Container]:
    """Return what `docker inspect` says of the containers of a session, running or not, by hostname.

    ``agent`` is added to each: the agent whose engine has it.
    """
    line = f"docker ps --all --quiet --filter name='^backendai-{name}-' | xargs --no-run-if-empty docker inspect"
    found: dict[str, Container] = {}
    for agent, text in zip(AGENTS, run_on_all(line), strict=True):
        for container in json.loads(text or "[]"):
            found[container["Config"]["Hostname"]] = {**container, "agent": agent}
    return found


def runs(container: Container) -> tuple[str, str]:
    """Return the id of a container and when it was started: both stay the same unless it was replaced or restarted."""
    return container["Id"], container["State"]["StartedAt"]


def network_state() -> list[str]:
    """Return the links, forwarding entries and rules of each agent, as text."""
    return run_on_all(NETWORK)


def curl(host: str, url: str, *options: str) -> tuple[int, str]:
    """Ask a web server from a host with curl; return the status, 0 without an answer, and the page.

    The gateway's certificate is self-signed, and so is not checked.
    """
    words = ["curl", "--silent", "--insecure", "--max-time", str(PATIENCE), "--write-out", "\\n%{http_code}"]
    page, _newline, status = run_on(host, shlex.join([*words, *options, url]), check=False).rpartition("\n")
    return int(status), page


def answers_ssh(host: str, target: str, port: int = 22) -> bool:
    """Tell whether a host gets the host key of an SSH server."""
    return "ssh-ed25519" in run_on(host, f"ssh-keyscan -T {PATIENCE} -t ed25519 -p {port} {target}", check=False)
