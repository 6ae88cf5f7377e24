"""Agents are given back: they are then as they were before they were provisioned."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.internals import PROGRAMS
from tests.integration.laboratory import BUSYBOX
from tests.integration.removals import Hosts
from tests.integration.session_requests import SMALL
from tests.integration.spare_hosts import spare_hosts
from tests.lab.identity import SUITES, Host

# That a host is as it was before is shown by the scenarios of Molecule, too; here it has more to lose.
pytestmark = pytest.mark.provisioning
REMOVE = "backendai.cluster.agent : Remove what came with this role"
OF_AGENT = re.compile(r"^\S+ (/(etc|usr)/\S*backendai\S*|/var/lib/backendai-manager\S*|failed units|links|routes):")
"""Differences in what an agent has, but for packages: those of a gateway go with the last role of the host."""


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """New hosts of each suite of the lab, as agents."""
    folder = tmp_path_factory.mktemp("agents")
    wanted = [Host(f"spare{number}", "agents", suite, 60 + number) for number, suite in enumerate(SUITES)]
    with spare_hosts(folder, *wanted) as (hosts, options):
        made = Hosts(hosts, options, folder)
        provisioned = made.play("provision_agents")
        assert provisioned.code == 0, provisioned.output
        yield made


@pytest.mark.long
def test_an_engine_with_containers_of_others_is_kept_and_check_mode_says_so(agents: Hosts) -> None:
    first = agents.hosts[0]
    first.run("tar -cC /etc hostname | docker import - others/web && docker create --name web others/web /x")
    told = agents.check("remove_agents")
    first.run("docker rm web && docker rmi others/web")
    assert told.code == 0, told.output
    assert "package docker.io: the engine has container web" in told.text
    assert first.run(f"test -e {PROGRAMS}/current && echo yes") == "yes\n"


def test_an_agent_that_was_a_gateway_too_is_the_agent_that_it_was(agents: Hosts, tmp_path: Path) -> None:
    both, (first, *_others) = agents.first_in("gateways", tmp_path), agents.hosts
    tables = first.run("nft list tables")
    provisioned = both.play("provision_gateways")
    assert provisioned.code == 0, provisioned.output
    refused = both.play("remove_agents")
    assert "this host is a gateway, too: run backendai.cluster.remove_gateways for it first" in refused.text
    removed = both.play("remove_gateways")
    assert removed.code == 0, removed.output
    assert first.run("nft list tables") == tables
    assert [line for line in both.differences() if OF_AGENT.search(line)] == []


@pytest.mark.long
def test_an_agent_whose_sessions_were_ended_is_as_it_was_before_even_if_the_removal_was_killed(agents: Hosts) -> None:
    last = agents.hosts[-1]
    last.load_images()
    request = {"name": "ending", "image": BUSYBOX, "designated_agents": [last.name], **SMALL}
    created = agents.play("create_session", **{f"session_{name}": value for name, value in request.items()})
    assert created.record["status"] == "RUNNING", created.output
    agents.kill("remove_agents", REMOVE, remove_sessions=True)
    assert agents.state_of(created.record["id"]) == "TERMINATED"
    removed = agents.play("remove_agents")
    assert removed.code == 0, removed.output
    again = agents.play("remove_agents")
    assert (again.code, again.changed) == (0, 0), again.output
    assert agents.differences() == []
