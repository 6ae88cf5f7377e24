"""The session in which the examples of docs/examples run: three containers on three agents."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from tests.frameworks.packages import copy_to_agent
from tests.integration.ansible_settings import ROOT
from tests.integration.internals import OUTPUT
from tests.integration.laboratory import AGENTS, in_parallel, run_on, run_on_all
from tests.integration.sessions import StartedSession, started_session
from tests.lab.distributed_image import TAG

EXAMPLES = ROOT / "docs" / "examples"
ON_AGENTS = "/srv/examples"


def request_of(name: str) -> dict[str, Any]:
    """Return the session that an example describes, with the lab's image, and one container on each agent."""
    described = yaml.safe_load((EXAMPLES / name).read_text())
    request = {key.removeprefix("session_"): value for key, value in described.items() if key != "session_name"}
    return {**request, "image": TAG, "agent_selection": "dispersed"}


def printed(agent: str, session_id: str) -> str:
    """Return what a session that has ended had printed in main1."""
    return run_on(agent, f"zcat {OUTPUT}/{session_id}/main1@*@.gz")


@pytest.fixture(scope="session")
def examples() -> Iterator[str]:
    """The folder on all agents with the examples."""
    try:
        in_parallel(*[partial(copy_to_agent, EXAMPLES, agent, ON_AGENTS) for agent in AGENTS])
        yield ON_AGENTS
    finally:
        run_on_all(f"rm -rf {ON_AGENTS}", AGENTS)


@pytest.fixture(scope="module")
def session(examples: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """The session of the examples."""
    request = request_of("session.yml")
    assert [mount["source"] for mount in request["mounts"]] == [examples]
    with started_session(tmp_path_factory.mktemp("examples"), **request) as started:
        yield started


@pytest.fixture(scope="module")
def with_mlflow(examples: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """The session of the examples with the app mlflow in main1."""
    request = {**request_of("session.yml"), "apps": ["mlflow"]}
    assert examples
    with started_session(tmp_path_factory.mktemp("mlflow"), **request) as started:
        yield started
