"""Fixtures for the lab, which all tests share; each test has to restore its state, which is checked."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.ansible_settings import ROOT
from tests.integration.inventories import UNREACHABLE, inventory_options
from tests.integration.laboratory import AGENTS, RUNS, agent_state, run_counts
from tests.integration.rounds import Campaign
from tests.integration.sessions import Sessions, end_all_sessions

CAMPAIGN = pytest.StashKey[Campaign]()


def pytest_addoption(parser: pytest.Parser) -> None:
    lab = parser.getgroup("lab")
    lab.addoption("--seed", type=int, help="repeat the random choices of an earlier run")
    lab.addoption("--soak", type=int, default=0, metavar="ROUNDS", help="number of rounds of tests marked soak")
    progress = ROOT / ".cache" / "soak.json"
    lab.addoption("--soak-progress", type=Path, default=progress, help="file with the rounds passed so far")


def pytest_configure(config: pytest.Config) -> None:
    options = (config.getoption(name) for name in ("soak", "seed", "soak_progress"))
    config.stash[CAMPAIGN] = Campaign.begin(*options)


#: Files with few tests that provision hosts or wait for them. They begin first, so that no lab waits for the other.
FIRST = (
    "test_agent_options.py",
    "test_firewall.py",
    "test_wireguard.py",
    "test_hostile_images.py",
    "test_odd_hosts.py",
    "test_backendai_command.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order files by the time they take: those in ``FIRST``, then by tests. Leave long tests to ``make soak``."""
    tests = Counter(item.path for item in items)
    place = {name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: (place.get(item.path.name, len(FIRST)), -tests[item.path], item.path))
    if config.getoption("soak"):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_report_header(config: pytest.Config) -> str:
    campaign = config.stash[CAMPAIGN]
    return f"lab: --seed {campaign.seed}, rounds passed before: {sum(campaign.done.values())}"


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK:
        session.config.stash[CAMPAIGN].end()
    if worker := getattr(session.config, "workeroutput", None):
        worker["runs"] = dict(RUNS)


def pytest_testnodedown(node: Any) -> None:
    """Count the playbooks of a worker, which has ended."""
    RUNS.update(getattr(node, "workeroutput", {}).get("runs", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(run_counts())


@pytest.fixture(scope="session", autouse=True)
def empty_lab(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Terminate sessions left in the lab, such as those of the demo, because tests count sessions."""
    end_all_sessions(tmp_path_factory.mktemp("empty"))


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> Iterator[random.Random]:
    """A random generator for each round of a test: one round, or as many as ``--soak`` requests."""
    return request.config.stash[CAMPAIGN].rounds_of(request.node.name)


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[Sessions]:
    """Sessions with unique names; afterwards the agents and the queue have to be in their initial state."""
    with Sessions(tmp_path) as sessions:
        yield sessions
    assert agent_state() == sessions.initial_state


@pytest.fixture
def agent1_sessions(sessions: Sessions) -> Sessions:
    """Sessions limited to agent1, for tests that do not depend on the agent."""
    sessions.limit_to(AGENTS[0])
    return sessions


@pytest.fixture
def unreachable_agent2(tmp_path: Path) -> list[str]:
    """The options of an inventory in which agent2 has a closed SSH port."""
    return inventory_options(tmp_path, agent2=UNREACHABLE)
