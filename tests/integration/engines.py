"""Start the engine of an agent again after it was killed."""

from __future__ import annotations

from pathlib import Path

from tests.integration.laboratory import TIMEOUT, run_on, run_playbook
from tests.integration.waiting import wait_until

_START = "systemctl reset-failed docker.service; systemctl start docker.service && echo it is back"

# Docker 20.10 that is killed while it makes or removes a network may panic at each start from then on.
_PANICS = "journalctl --unit docker.service --since=-30s | grep --fixed-strings libnetwork | grep --quiet reservePools"
_STORE = "/var/lib/docker/network/files/local-kv.db"
_REMEDY = f"systemctl stop docker.socket docker.service; mv {_STORE} {_STORE}.damaged"


def start_engine(agent: str, folder: Path) -> None:
    """Start the engine; where it panics over its own networks, do what docs/troubleshooting.md says."""
    repaired = False

    def is_back() -> bool:
        nonlocal repaired
        if "it is back" in run_on(agent, _START, check=False):
            return True
        if "it panics" in run_on(agent, f"{_PANICS} && echo it panics", check=False):
            run_on(agent, _REMEDY)
            repaired = True
        return False

    wait_until(is_back, TIMEOUT)
    if repaired:
        print(f"the engine of {agent} could not read its networks: they were made anew", flush=True)
        run = run_playbook("provision_agents", folder, {}, "--limit", agent)
        assert run.code == 0, run.output
