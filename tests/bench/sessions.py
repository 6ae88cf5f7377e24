"""Creates, lists and terminates sessions by the collection's playbooks."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from tests.bench import lab
from tests.bench.timing import Run

# Prefix of the names of all sessions of the benchmark.
PREFIX = "bench-"


@dataclasses.dataclass(frozen=True)
class Created:
    """A run of ``create_session`` and the record that it wrote."""

    run: Run
    record: dict[str, Any]


def create(name: str, variables: Mapping[str, Any], *options: str) -> Created:
    """Create a session, or run the creation of an existing one again. Raises :class:`BenchError` if that fails."""
    record = lab.make_folder() / "record.json"
    request = {"session_name": name, "session_record_path": str(record), **variables}
    run = lab.run_playbook("create_session", request, *options)
    return Created(run, json.loads(record.read_text()))


def terminate(name: str, variables: Mapping[str, Any] | None = None) -> Run:
    """Terminate a session; it need not exist."""
    return lab.run_playbook("terminate_session", {"session_name": name, **(variables or {})})


def list_all(variables: Mapping[str, Any] | None = None, *options: str) -> tuple[Run, list[dict[str, Any]]]:
    """Return the run of ``list_sessions`` and the records of all sessions."""
    path = lab.make_folder() / "list.json"
    run = lab.run_playbook("list_sessions", {"session_list_path": str(path), **(variables or {})}, *options)
    return run, json.loads(path.read_text())


@contextlib.contextmanager
def session(name: str, variables: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Create a session, yield its record, and terminate it."""
    try:
        yield create(name, variables).record
    finally:
        terminate(name)


def end_all() -> None:
    """Terminate the benchmark's sessions; pending ones first, so that none of them starts meanwhile."""
    for waiting in (True, False):
        ids = [
            session_id
            for session_id, name, is_waiting in lab.live_sessions()
            if name.startswith(PREFIX) and is_waiting == waiting
        ]
        lab.in_parallel([partial(_end, session_id) for session_id in ids])


def _end(session_id: str) -> None:
    lab.run_playbook("terminate_session", {"session_id": session_id})
