"""The lab for the benchmark: the only file here that uses helpers of the integration tests."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.bench import timing
from tests.bench.errors import BenchError
from tests.integration import firewalls, internals, laboratory

ROOT, AGENTS = laboratory.ROOT, laboratory.AGENTS
AGENT_STATE = internals.AGENT_STATE
PYTHON, BUSYBOX = laboratory.PYTHON, laboratory.BUSYBOX

T = TypeVar("T")

_folder = tempfile.TemporaryDirectory(prefix="bench-")
# One connection to each host is kept open, as Ansible does.
_SHARED = ("ControlMaster=auto", "ControlPersist=60s", f"ControlPath={_folder.name}/%C")


def is_up() -> bool:
    """Return whether there is a lab."""
    return laboratory.INVENTORY.exists()


def run_playbook(name: str, variables: Mapping[str, Any], *options: str) -> timing.Run:
    """Run a playbook of the collection; several may run at once. Raises :class:`BenchError` if it fails."""
    command = laboratory.command(name, make_folder(), variables, *options)
    return timing.run(command, ROOT, laboratory.environment())


def run_play(play: Mapping[str, Any], ansible_playbook: str = "ansible-playbook") -> timing.Run:
    """Run a play, by default with the Ansible of the project. Raises :class:`BenchError` if it fails."""
    path = make_folder() / "playbook.json"
    path.write_text(json.dumps([{"name": "Benchmark", "gather_facts": False, **play}]))
    return timing.run([ansible_playbook, "-i", str(laboratory.INVENTORY), str(path)], ROOT, laboratory.environment())


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
    in_parallel([partial(run_on, host, line) for host, line in lines.items()])


def in_parallel(calls: Iterable[Callable[[], T]], at_most: int = 16) -> list[T]:
    """Make calls in parallel, at most that many, and return their results in order."""
    with ThreadPoolExecutor(at_most) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def host_variables(host: str) -> dict[str, Any]:
    """Return the inventory's variables of a host."""
    return dict(laboratory.host_variables(host))


def underlay_address(agent: str) -> str:
    """Return the underlay address of an agent."""
    return str(host_variables(agent)["agent_underlay_address"])


def memory_share(parts: int) -> int:
    """Return the memory per container, in bytes, with which exactly ``parts`` containers fit on each agent."""
    return laboratory.memory_share(parts)


def firewall(**variables: Any) -> AbstractContextManager[None]:
    """Apply other firewall rules for a while, given ``firewall_*`` variables without their prefix."""
    return firewalls.temporary_firewall(**variables)


def agent_state() -> dict[str, str]:
    """Return everything that a session can leave behind on each agent, as text that can be compared."""
    return laboratory.agent_state()


def live_sessions() -> list[tuple[str, str, bool]]:
    """Return the id and name of each session, and whether it is pending."""
    queued = [entry for entry in laboratory.queue_entries().values() if entry["state"] != "TERMINATED"]
    plans = [stored["plan"] for sessions in laboratory.stored_sessions().values() for stored in sessions]
    sessions = {plan["id"]: (plan["id"], plan["name"], False) for plan in plans}
    waiting = {entry["id"]: (entry["id"], entry["name"], True) for entry in queued if entry["id"] not in sessions}
    return [*waiting.values(), *sessions.values()]


def history() -> set[str]:
    """Return the ids of the ended sessions in the queue's history."""
    return {entry["id"] for entry in laboratory.queue_entries().values() if entry["state"] == "TERMINATED"}


def forget(session_ids: Iterable[str]) -> None:
    """Remove ended sessions from the queue's history."""
    for session_id in session_ids:
        (laboratory.QUEUE / f"{session_id}.json").unlink()
