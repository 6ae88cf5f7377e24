"""Exposure of agent1 by the network around it is created and has to be reported as a warning, or refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.internals import MODULE_SEGMENTATION, TABLE
from tests.integration.inventories import inventory_options
from tests.integration.laboratory import INVENTORY, address, ansible, run_on, run_playbook
from tests.integration.reconciliation import reconcile_paused

pytestmark = [pytest.mark.isolation, pytest.mark.provisioning]

# From the former range of 6to4 relays: public and unassigned.
PUBLIC = "192.88.99.77"
ENGINE_PORT = 2375
DROP_IN = "/etc/systemd/system/docker.service.d/segmentation.conf"
AWAIT_ENGINE = "for i in $(seq 60); do docker info >/dev/null 2>&1 && exit; sleep 1; done; exit 1"


def findings(**options: Any) -> dict[str, str]:
    """Return the module's findings on agent1, by kind; each has to be a warning too."""
    module_args = json.dumps({"underlay_address": address("agent1"), **options})
    process = ansible("ansible", "-i", INVENTORY, "agent1", "-m", MODULE_SEGMENTATION, "-a", module_args)
    assert process.returncode == 0, process.stdout + process.stderr
    result = yaml.safe_load(process.stdout.partition("=> ")[2])
    assert result["changed"] is False
    # Warnings are wrapped anywhere.
    warnings = "".join(process.stderr.split())
    assert all("".join(finding["message"].split()) in warnings for finding in result["findings"])
    return {finding["kind"]: finding["message"] for finding in result["findings"]}


@contextmanager
def arranged(begin: str, end: str) -> Iterator[None]:
    """Run a shell line on agent1, and another one afterwards to undo it."""
    try:
        run_on("agent1", begin)
        yield
    finally:
        run_on("agent1", end)


def test_provisioned_agent_has_no_findings() -> None:
    assert findings(users={"user1": "203.0.113.31"}, managers={"manager1": "manager.example"}) == {}


def test_public_address_is_a_finding() -> None:
    with arranged(f"ip address add {PUBLIC}/32 dev eth0", f"ip address del {PUBLIC}/32 dev eth0"):
        assert f"it has the public address {PUBLIC}, " in findings()["public_address"]


def test_engine_with_tcp_socket_is_a_finding() -> None:
    opened = f"[Service]\\nEnvironment=DOCKER_OPTS=-H=tcp://{address('agent1')}:{ENGINE_PORT}\\n"
    create = f"mkdir -p $(dirname {DROP_IN}); printf '{opened}' > {DROP_IN}"
    restart = f"systemctl daemon-reload; systemctl restart docker; {AWAIT_ENGINE}"
    with arranged(f"{create}; {restart}", f"rm {DROP_IN}; rmdir $(dirname {DROP_IN}); {restart}"):
        assert f"the Docker engine listens at {address('agent1')}:{ENGINE_PORT}: " in findings()["engine_socket"]


def test_unfiltered_ipv6_is_a_finding() -> None:
    with reconcile_paused("agent1"):
        run_on("agent1", f"nft delete table {TABLE}")
        assert "IPv6 is up on eth0 and no rule drops incoming IPv6: " in findings()["ipv6"]
        other = "nft add table ip6 segmentation; nft add chain ip6 segmentation input"
        policy = "'{ type filter hook input priority 0; policy drop; }'"
        with arranged(f"{other} {policy}", "nft delete table ip6 segmentation"):
            assert findings() == {}


def test_provisioning_prints_findings(tmp_path: Path) -> None:
    run = run_playbook("provision_agents", tmp_path, {}, "--limit", "agent1", "--tags", "firewall")
    assert run.code == 0, run.output
    assert f"users user1 ({address('user1')}) share the agents' own network" in run.text
    assert "no rule drops incoming IPv6" not in run.text


def test_an_agent_with_management_and_compute_in_one_network_is_refused_before_anything_is_changed(
    tmp_path: Path,
) -> None:
    network = f"{address('agent1').rpartition('.')[0]}.0/24"
    networks = {"agent_management_networks": ["198.18.77.0/24"], "agent_compute_networks": [network]}
    run = run_playbook(
        "provision_agents", tmp_path, {}, *inventory_options(tmp_path, agent1=networks), "--limit", "agent1"
    )
    assert (run.code != 0, run.changed) == (True, 0), run.output
    assert (
        f"SSH reaches it at {address('agent1')}, which is not in agent_management_networks (198.18.77.0/24): set"
        " ansible_host to its address there."
    ) in run.text
