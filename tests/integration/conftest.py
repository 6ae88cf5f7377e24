"""One lab for all tests; each test leaves it as it found it, and that is checked."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.laboratory import AGENTS, INVENTORY, QUEUE, Run, at_once, held, play, queue, remains


class Sessions:
    """Sessions of one test: whatever it starts is ended with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._limit: tuple[str, ...] = ()
        self.name = f"it-{uuid.uuid4().hex[:8]}"

    def only_on(self, agent: str) -> None:
        """Let all further runs know of no other agent: they ask the fewer hosts."""
        self._limit = ("--limit", f"localhost,gateway1,{agent}")

    def create(self, *options: str, **variables: object) -> Run:
        """Run ``create_session`` with ``session_*`` variables given without their prefix."""
        return self.run("create_session", *options, **{"name": self.name, "image": "lab/python:1", **variables})

    def terminate(self, *options: str, **variables: object) -> Run:
        """Run ``terminate_session``, on the test's own session unless another is named."""
        return self.run("terminate_session", *options, **(variables or {"name": self.name}))

    def run(self, playbook: str, *options: str, **variables: object) -> Run:
        """Run any playbook with ``session_*`` variables given without their prefix."""
        given = {f"session_{key}": value for key, value in variables.items()}
        return play(playbook, self._folder, given, *self._limit, *options)

    def listed(self, *options: str, **variables: object) -> dict[str, Any]:
        """Run ``list_sessions`` and return the records of this test's sessions by name."""
        run = self.run("list_sessions", *options, **variables)
        assert run.code == 0, run.output
        return {record["name"]: record for record in run.record if record["name"].startswith(self.name)}

    def end(self) -> None:
        """End what is left of this test's sessions; what waits goes first, so that it is not started for that."""
        live = [one for one in queue().values() if one["state"] != "ended"]
        stored = [one["plan"] for plans in held().values() for one in plans]
        for group in (live, stored):
            ids = {one["id"] for one in group if one["name"].startswith(self.name)}
            for ended in at_once(*[partial(self.terminate, id=session_id) for session_id in ids]):
                assert ended.code == 0, ended.output


@pytest.fixture(scope="session", autouse=True)
def empty_lab(tmp_path_factory: pytest.TempPathFactory) -> None:
    """End what others have left in the lab, such as the sessions of the demo: tests count what is there."""
    made = Sessions(tmp_path_factory.mktemp("empty"))
    for record in made.run("list_sessions").record:
        ended = made.terminate(id=record["id"])
        assert ended.code == 0, ended.output
    assert {entry["state"] for entry in queue().values()} <= {"ended"}


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[Sessions]:
    """Sessions with names of their own; afterwards the agents and the queue are as they were before."""
    before, history = remains(), queue()
    made = Sessions(tmp_path)
    yield made
    made.end()
    assert remains() == before
    later = {session_id: entry for session_id, entry in queue().items() if session_id not in history}
    assert {entry["state"] for entry in later.values()} <= {"ended"}
    for session_id in later:
        (QUEUE / f"{session_id}.json").unlink()


@pytest.fixture
def near(sessions: Sessions) -> Sessions:
    """Sessions on agent1 alone, for what is the same wherever it happens."""
    sessions.only_on(AGENTS[0])
    return sessions


@pytest.fixture
def unreachable_agent2(tmp_path: Path) -> Path:
    """An inventory in which agent2 has an address where nobody listens."""
    inventory = tmp_path / "inventory.yml"
    port = "          ansible_port: 9\n"
    inventory.write_text(INVENTORY.read_text().replace("        agent2:\n", f"        agent2:\n{port}"))
    return inventory
