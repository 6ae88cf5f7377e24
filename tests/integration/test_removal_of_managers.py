"""Gateways and managers are given back: they are then as they were before they were provisioned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.internals import GATEWAY_STATE
from tests.integration.managers import QUEUE
from tests.integration.removals import LOST_ID, Hosts
from tests.integration.spare_hosts import spare_hosts
from tests.lab.identity import SUITES, Host

# That a host is as it was before is shown by the scenarios of Molecule, too; here it has more to lose.
pytestmark = [pytest.mark.managers, pytest.mark.provisioning, pytest.mark.long]


@pytest.fixture
def others(tmp_path: Path) -> Iterator[Hosts]:
    """A new gateway and a new manager."""
    wanted = [Host("spare8", "gateways", SUITES[0], 68), Host("spare9", "managers", SUITES[0], 69)]
    with spare_hosts(tmp_path, *wanted) as (hosts, options):
        made = Hosts(hosts, options, tmp_path)
        for playbook in ("provision_managers", "provision_gateways"):
            provisioned = made.play(playbook)
            assert provisioned.code == 0, provisioned.output
        yield made


def test_a_removed_gateway_and_a_removed_manager_are_as_they_were_before(others: Hosts) -> None:
    gateway, manager = others.hosts
    gateway.run(f"touch {GATEWAY_STATE}/routes/{LOST_ID}.json")
    refused = others.play("remove_gateways")
    assert f"this gateway has routes to {LOST_ID}: end these sessions with" in refused.text
    entry = json.dumps({"id": LOST_ID, "name": "train", "state": "RUNNING"})
    manager.run(f"echo '{entry}' > {QUEUE}/{LOST_ID}.json")
    refused = others.play("remove_managers")
    assert "sessions of this manager have not ended: train; end them, or run" in refused.text
    manager.run(f"rm {QUEUE}/{LOST_ID}.json")
    for playbook in ("remove_managers", "remove_gateways"):
        removed = others.play(playbook, remove_routes=True)
        assert removed.code == 0, removed.output
        assert "did not come with this collection" not in removed.text
    assert others.differences() == []
    for playbook in ("remove_managers", "remove_gateways"):
        again = others.play(playbook)
        assert (again.code, again.changed) == (0, 0), again.output
