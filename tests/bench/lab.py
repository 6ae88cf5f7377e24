"""The lab for the benchmark: playbooks and their sessions, commands on hosts, and that all is left as it was."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench import timing
from tests.bench.timing import BenchError, Cost
from tests.integration import laboratory

ROOT, AGENTS = laboratory.ROOT, laboratory.AGENTS
PYTHON, BUSYBOX = laboratory.PYTHON, laboratory.BUSYBOX

# Prefix of the names of all sessions of the benchmark, and the label of what it creates itself.
PREFIX, LABEL = "bench-", "backendai-bench"

_folder = tempfile.TemporaryDirectory(prefix="bench-")
# One connection to each host is kept open, as Ansible does.
_SHARED = ("ControlMaster=auto", "ControlPersist=60s", f"ControlPath={_folder.name}/%C")


def is_up() -> bool:
    """Return whether there is a lab."""
    return laboratory.INVENTORY.exists()


def run_playbook(name: str, variables: Mapping[str, Any]) -> Cost:
    """Return the cost of a playbook; several may run at once. Raises :class:`BenchError` if it fails."""
    return timing.run(laboratory.command(name, make_folder(), variables), ROOT, laboratory.environment())


def run_play(play: Mapping[str, Any], ansible_playbook: str = "ansible-playbook") -> Cost:
    """Return the cost of a play, by default with the Ansible of the project. Raises :class:`BenchError` if it fails."""
    path = make_folder() / "playbook.json"
    path.write_text(json.dumps([{"name": "Benchmark", "gather_facts": False, **play}]))
    return timing.run([ansible_playbook, "-i", str(laboratory.INVENTORY), str(path)], ROOT, laboratory.environment())


def create(name: str, variables: Mapping[str, Any]) -> tuple[Cost, dict[str, Any]]:
    """Create a session, or run the creation of an existing one again; return the cost and the record."""
    record = make_folder() / "record.json"
    request = {"session_name": name, "session_record_path": str(record), **variables}
    return run_playbook("create_session", request), json.loads(record.read_text())


def terminate(name: str, variables: Mapping[str, Any] | None = None) -> Cost:
    """Terminate a session; it need not exist."""
    return run_playbook("terminate_session", {"session_name": name, **(variables or {})})


def list_all() -> tuple[Cost, list[dict[str, Any]]]:
    """Return the cost of ``list_sessions`` and the records of all sessions."""
    path = make_folder() / "list.json"
    return run_playbook("list_sessions", {"session_list_path": str(path)}), json.loads(path.read_text())


@contextlib.contextmanager
def session(name: str, variables: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Create a session, yield its record, and terminate it."""
    try:
        yield create(name, variables)[1]
    finally:
        terminate(name)


def make_folder() -> Path:
    """Return a new folder that is removed with this process."""
    return Path(tempfile.mkdtemp(dir=_folder.name))


def ssh_command(host: str, line: str) -> list[str]:
    """Return the command that runs a shell line on a host."""
    ssh, *words = laboratory.ssh(host, line)
    return [ssh, *(word for option in _SHARED for word in ("-o", option)), *words]


def run_on(host: str, line: str, text: str = "") -> str:
    """Run a shell line with ``text`` as its input and return its output. Raises :class:`BenchError`."""
    process = subprocess.run(ssh_command(host, line), input=text, capture_output=True, text=True, check=False)
    if process.returncode:
        raise BenchError(f"{host}: {line!r} ended with {process.returncode}: {process.stdout}{process.stderr}")
    return process.stdout.strip()


def run_on_each(lines: Mapping[str, str]) -> None:
    """Run a shell line on each host in parallel. Raises :class:`BenchError` if one of them fails."""
    laboratory.in_parallel(*(partial(run_on, host, line) for host, line in lines.items()))


def underlay_address(agent: str) -> str:
    """Return the underlay address of an agent."""
    return str(laboratory.host_variables(agent)["agent_underlay_address"])


@contextlib.contextmanager
def clean_lab() -> Iterator[None]:
    """Remove everything of the benchmark, before and after, including leftovers of a killed run.

    Raises :class:`BenchError` if there are other sessions, or if something is left behind.
    """
    _clear()
    others = sorted({name for _id, name, _waiting in _live_sessions()})
    if others:
        raise BenchError(f"other sessions would be measured too: terminate {', '.join(others)} first")
    before, history = laboratory.agent_state(), _history()
    try:
        yield
    finally:
        _clear()
    for session_id in _history() - history:
        (laboratory.QUEUE / f"{session_id}.json").unlink()
    after = laboratory.agent_state()
    differences = [
        f"{agent}: {line}"
        for agent in before
        for line in sorted({*before[agent].splitlines()} ^ {*after[agent].splitlines()})
    ]
    if differences:
        raise BenchError("the agents were not restored:\n" + "\n".join(differences))


def end_all() -> None:
    """Terminate the benchmark's sessions; pending ones first, so that none of them starts meanwhile."""
    for waiting in (True, False):
        ids = [each for each, name, pending in _live_sessions() if name.startswith(PREFIX) and pending == waiting]
        laboratory.in_parallel(*(partial(run_playbook, "terminate_session", {"session_id": each}) for each in ids))


def remove_containers() -> None:
    """Remove every container and local network of the benchmark; those of a swarm are removed with the swarm."""
    selection = f"--filter label={LABEL} --quiet"
    line = (
        f"docker ps --all {selection} | xargs --no-run-if-empty docker rm --force --volumes >/dev/null && "
        f"docker network ls --filter scope=local {selection} | xargs --no-run-if-empty docker network rm >/dev/null"
    )
    run_on_each(dict.fromkeys(AGENTS, line))


def _clear() -> None:
    end_all()
    remove_containers()


def _live_sessions() -> list[tuple[str, str, bool]]:
    """Return the id and name of each session, and whether it is pending."""
    queued = [entry for entry in laboratory.queue_entries().values() if entry["state"] != "TERMINATED"]
    plans = [stored["plan"] for sessions in laboratory.stored_sessions().values() for stored in sessions]
    sessions = {plan["id"]: (plan["id"], plan["name"], False) for plan in plans}
    waiting = {entry["id"]: (entry["id"], entry["name"], True) for entry in queued if entry["id"] not in sessions}
    return [*waiting.values(), *sessions.values()]


def _history() -> set[str]:
    """Return the ids of the ended sessions in the queue's history."""
    return {entry["id"] for entry in laboratory.queue_entries().values() if entry["state"] == "TERMINATED"}
