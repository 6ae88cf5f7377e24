"""Options of playbooks of operators, which start no session."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.laboratory import AGENTS, address, run_on, run_on_all, run_playbook
from tests.integration.managers import MANAGER

pytestmark = pytest.mark.isolation

CORDON = "/var/lib/backendai/cordon.json"
OVER = "/tmp/probes-over"
#: Prints how many connections are being opened, again and again.
COUNT = f"until [ -e {OVER} ]; do ss -Htn state syn-sent | wc -l; sleep 0.1; done"


def test_all_agents_are_taken_out_of_service_if_that_is_confirmed(tmp_path: Path) -> None:
    try:
        run = run_playbook("cordon_agents", tmp_path, {"agent_names": list(AGENTS), "agent_all_confirmed": True})
        assert run.code == 0, run.output
        assert all("root" in text for text in run_on_all(f"cat {CORDON}"))
    finally:
        run_on_all(f"rm -f {CORDON}")


def test_isolation_is_probed_from_the_hosts_and_as_fast_as_was_asked_for(tmp_path: Path) -> None:
    """A manager may log in to agents, so it finds a port that outsiders do not."""
    variables = {"probe_hosts": MANAGER, "probe_ports": "22,9001-9010", "probe_rate": 10}
    run_on(MANAGER, f"rm -f {OVER}")
    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(run_on, MANAGER, COUNT)
        try:
            given = {f"firewall_{name}": value for name, value in variables.items()}
            run = run_playbook("verify_isolation", tmp_path, {**given, "agent_group": "agent1"})
        finally:
            run_on(MANAGER, f"touch {OVER}")
        opened = [int(count) for count in counting.result().split()]
    run_on(MANAGER, f"rm -f {OVER}")
    found = {(entry["probe_host"], entry["address"], entry["port"]) for entry in run.record["findings"]}
    assert (MANAGER, address("agent1"), 22) in found, run.output
    assert 1 <= max(opened) <= 10
