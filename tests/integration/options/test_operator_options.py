"""Options of playbooks of operators, which start no session."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.integration.gateway_client import USER
from tests.integration.internals import CORDON
from tests.integration.inventories import UNREACHABLE
from tests.integration.laboratory import AGENTS, run_on, run_on_all, run_playbook

pytestmark = pytest.mark.isolation

OVER = "/tmp/probes-over"
PORTS = "9001-9008"
#: Prints how many connections are being opened, again and again.
COUNT = (
    f"until [ -e {OVER} ]; do ss -Htn state syn-sent '( dport >= :9001 and dport <= :9008 )' | wc -l; sleep 0.1; done"
)


def test_all_agents_are_taken_out_of_service_if_that_is_confirmed(tmp_path: Path) -> None:
    try:
        run = run_playbook("cordon_agents", tmp_path, {"agent_names": list(AGENTS), "agent_all_confirmed": True})
        assert run.code == 0, run.output
        assert all("root" in text for text in run_on_all(f"cat {CORDON}"))
    finally:
        run_on_all(f"rm -f {CORDON}")


def test_isolation_is_probed_from_the_hosts_and_as_fast_as_was_asked_for(tmp_path: Path) -> None:
    """The group of users has a second host, which cannot be logged in to; the agent drops what comes from outside."""
    variables = {"probe_hosts": USER, "probe_ports": PORTS, "probe_rate": 12}
    users = {"all": {"children": {"users": {"hosts": {"nobody": {"ansible_host": "127.0.0.1", **UNREACHABLE}}}}}}
    (tmp_path / "users.yml").write_text(yaml.safe_dump(users))
    run_on(USER, f"rm -f {OVER}")
    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(run_on, USER, COUNT)
        try:
            given = {f"firewall_{name}": value for name, value in variables.items()}
            options = ("-i", str(tmp_path / "users.yml"), "-e", "agent_group=agent1")
            run = run_playbook("verify_isolation", tmp_path, given, *options)
        finally:
            run_on(USER, f"touch {OVER}")
        opened = [int(count) for count in counting.result().split()]
    run_on(USER, f"rm -f {OVER}")
    assert (run.code, run.record["probe_hosts"]) == (0, [USER]), run.output
    assert {entry["ports"] for entry in run.record["probed"] if entry["target"] == "agent1"} == {PORTS}
    assert 1 <= max(opened) <= 12
