"""One lab for all tests; each test leaves it as it found it, and that is checked."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.laboratory import Run, play, remains


class Sessions:
    """Sessions of one test: whatever it starts is ended with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.name = f"it-{uuid.uuid4().hex[:8]}"

    def create(self, *options: str, **variables: object) -> Run:
        """Run ``create_session`` with ``session_*`` variables given without their prefix."""
        return self.run("create_session", *options, **{"name": self.name, "image": "lab/python:1", **variables})

    def terminate(self, *options: str, **variables: object) -> Run:
        """Run ``terminate_session``, on the test's own session unless another is named."""
        return self.run("terminate_session", *options, **(variables or {"name": self.name}))

    def run(self, playbook: str, *options: str, **variables: object) -> Run:
        """Run any playbook with ``session_*`` variables given without their prefix."""
        return play(playbook, self._folder, {f"session_{key}": value for key, value in variables.items()}, *options)


@pytest.fixture(scope="session", autouse=True)
def empty_lab(tmp_path_factory: pytest.TempPathFactory) -> None:
    """End what others have left in the lab, such as the sessions of the demo: tests count what is there."""
    made = Sessions(tmp_path_factory.mktemp("empty"))
    for record in made.run("list_sessions").record:
        ended = made.terminate(id=record["id"])
        assert ended.code == 0, ended.output


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[Sessions]:
    """Sessions with names of their own; afterwards the agents are as they were before."""
    before = remains()
    made = Sessions(tmp_path)
    yield made
    ended = made.terminate()
    assert ended.code == 0, ended.output
    assert remains() == before
