"""Sessions of a test, which are terminated at its end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from tests.integration.laboratory import (
    PYTHON,
    QUEUE,
    Kernel,
    Run,
    agent_state,
    in_parallel,
    queue_entries,
    run_playbook,
    stored_sessions,
)


class Sessions:
    """Sessions with unique names; as a context manager it terminates them."""

    def __init__(self, folder: Path) -> None:
        """Store the agents' initial state for comparison; files of variables are written to ``folder``."""
        self._folder = folder
        self._limit: tuple[str, ...] = ()
        self.name = f"it-{uuid.uuid4().hex[:8]}"
        self.initial_state = agent_state()

    def __enter__(self) -> Sessions:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self.terminate_all()
        self._remove_history()

    def limit_to(self, agent: str) -> None:
        """Limit all further runs to one agent, so that they contact fewer hosts."""
        self._limit = ("--limit", f"localhost,gateway1,{agent}")

    def create(self, *options: str, **variables: object) -> Run:
        """Run ``create_session`` with ``session_*`` variables given without their prefix."""
        return self.run("create_session", *options, **{"name": self.name, "image": PYTHON, **variables})

    def start(self, *options: str, **variables: object) -> StartedSession:
        """Create a session and check that it is RUNNING."""
        run = self.create(*options, **variables)
        assert run.code == 0, run.output
        assert run.record["status"] == "RUNNING", run.output
        return StartedSession(self, run, variables)

    def terminate(self, *options: str, **variables: object) -> Run:
        """Run ``terminate_session``, by default on the session with the test's name."""
        return self.run("terminate_session", *options, **(variables or {"name": self.name}))

    def run(self, playbook: str, *options: str, **variables: object) -> Run:
        """Run any playbook with ``session_*`` variables given without their prefix."""
        extra_vars = {f"session_{key}": value for key, value in variables.items()}
        return run_playbook(playbook, self._folder, extra_vars, *self._limit, *options)

    def list_by_name(self, *options: str, **variables: object) -> dict[str, Any]:
        """Run ``list_sessions`` and return the records of this test's sessions by name."""
        run = self.run("list_sessions", *options, **variables)
        assert run.code == 0, run.output
        return {record["name"]: record for record in run.record if record["name"].startswith(self.name)}

    def terminate_all(self) -> None:
        """Terminate this test's sessions; pending ones first, one by one: no run starts what another one ends."""
        entries = queue_entries().values()
        pending = [entry for entry in entries if entry["state"] == "PENDING"]
        live = [entry for entry in entries if entry["state"] not in ("PENDING", "TERMINATED")]
        stored = [session["plan"] for sessions in stored_sessions().values() for session in sessions]
        for group in (*([entry] for entry in pending), live, stored):
            ids = {session["id"] for session in group if session["name"].startswith(self.name)}
            for ended in in_parallel(*[partial(self.terminate, id=session_id) for session_id in ids]):
                assert ended.code == 0, ended.output

    def _remove_history(self) -> None:
        """Remove this test's sessions from the history."""
        own = {
            session_id: entry["state"]
            for session_id, entry in queue_entries().items()
            if entry["name"].startswith(self.name)
        }
        assert set(own.values()) <= {"TERMINATED"}
        for session_id in own:
            (QUEUE / f"{session_id}.json").unlink()


class StartedSession(NamedTuple):
    """A running session, its creator, its run and its request."""

    sessions: Sessions
    run: Run
    request: dict[str, Any]

    @property
    def record(self) -> dict[str, Any]:
        return dict(self.run.record)

    @property
    def kernels(self) -> list[Kernel]:
        return list(self.run.record["kernels"])

    def container_on(self, agent: str) -> Kernel:
        """Return the session's first container on an agent."""
        return next(kernel for kernel in self.kernels if kernel["agent"] == agent)

    def create_again(self, *options: str, **changes: object) -> Run:
        """Run the creation of the same session again."""
        return self.sessions.create(*options, **{**self.request, **changes})


@contextmanager
def started_session(folder: Path, *options: str, **variables: object) -> Iterator[StartedSession]:
    """Start a session for the tests of a file; afterwards terminate it and check the agents' state."""
    with Sessions(folder) as sessions:
        yield sessions.start(*options, **variables)
    assert agent_state() == sessions.initial_state


def end_all_sessions(folder: Path) -> None:
    """Terminate all sessions of the lab, such as those of the demo."""
    sessions = Sessions(folder)
    for record in sessions.run("list_sessions").record:
        result = sessions.terminate(id=record["id"])
        assert result.code == 0, result.output
    assert {entry["state"] for entry in queue_entries().values()} <= {"TERMINATED"}
