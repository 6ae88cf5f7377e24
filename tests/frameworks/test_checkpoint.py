"""A training that its session's lifetime ends goes on in the next session, on another agent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.frameworks.conftest import printed, request_of
from tests.integration.containers import wait_for_exit
from tests.integration.laboratory import in_parallel, run_on
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until

FOLDER = "/srv/checkpoints"
AGENTS = ("agent1", "agent2")


@pytest.fixture
def data_folders() -> Iterator[None]:
    """The data folder on two agents, for the image's user."""
    try:
        in_parallel(*[partial(run_on, agent, f"install -d -o 1000 -g 1000 {FOLDER}") for agent in AGENTS])
        yield
    finally:
        in_parallel(*[partial(run_on, agent, f"rm -rf {FOLDER}") for agent in AGENTS])


@pytest.mark.usefixtures("examples", "data_folders")
def test_the_next_session_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    request = request_of("checkpoint.yml")
    with Sessions(tmp_path) as sessions:
        first = sessions.start(**request, designated_agents=["agent1"]).record["id"]

        def has_ended() -> bool:
            assert sessions.run("schedule_sessions").code == 0
            return not sessions.list_by_name()

        wait_until(has_ended, pause=5)
        text = printed("agent1", first)
        (step,) = re.findall(r"^\S+ stops at step (\d+) with loss \S+$", text, re.MULTILINE)
        assert 0 < int(step) < 2000, text

        # The lab's agents share no storage.
        checkpoint = run_on("agent1", f"base64 {FOLDER}/checkpoint.pt")
        run_on("agent2", f"echo '{checkpoint}' | base64 -d > {FOLDER}/checkpoint.pt")
        second = sessions.start(**request, designated_agents=["agent2"])
        (main,) = second.kernels
        assert wait_for_exit(main) == 0
        assert sessions.run("schedule_sessions").code == 0
        lines = [line.partition(" ")[2] for line in printed("agent2", main["id"]).splitlines()]
    assert lines[0] == f"starts at step {step}"
    assert lines[1].startswith("stops at step 2000 ")
