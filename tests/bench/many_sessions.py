"""Create and remove many single-node sessions of two containers on one agent; compare the last with the first.

Between, compare a run of the scheduler's timer for which nothing is due with the list.

Ansible's own time is excluded: it does not depend on the number of sessions, but is longer than the rest. The
agent does everything, with the code that the modules call, over one SSH connection.
"""

from __future__ import annotations

import io
import json
import shlex
import statistics
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

import yaml

from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationErrors
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import parse_options
from tests.bench import lab, sessions
from tests.bench.errors import BenchError
from tests.bench.leftovers import clean_lab
from tests.bench.timing import rounds

AGENT = "agent1"
COUNT, BLOCK = 100, 20
CONTAINERS, MEMORY = 2, "16m"

# Code that runs on the agent: the driver, the agents' code, and the control node's planner (pure Python).
PROGRAM = "tests/bench/agent_program"
COLLECTION = "ansible_collections/backendai/cluster"
CONTROL_NODE_PACKAGES = ("_placement", "_planner", "_report", "_request")
PACKED = ("plugins/module_utils", *(f"plugins/plugin_utils/{name}" for name in CONTROL_NODE_PACKAGES))
MAIN = "from tests.bench.agent_program.run import main\n\nmain()\n"

Parts = dict[str, float]


def measure(count: int) -> dict[str, list[float]]:
    """Return the figures: of the last block of sessions, as multiples of the first; the timer's run of each round."""
    timer: list[float] = []
    with clean_lab():
        parts = _run_on_agent(COUNT, lambda: timer.extend(_timer_over_list() for _number in rounds(count)))
    for kind, times in parts.items():
        print(f"\n{COUNT} sessions {kind}, medians of each block in seconds\n")
        print("\n".join(table(times)))
    return {f"many_sessions_{kind}": [growth(times)] for kind, times in parts.items()} | {"many_sessions_timer": timer}


def _timer_over_list() -> float:
    """Return the time of a run of the scheduler's timer, as a multiple of that of a list of all sessions."""
    listed, records = sessions.list_all()
    running = [record for record in records if record["status"] == "RUNNING"]
    if len(running) != COUNT:
        raise BenchError(f"expected {COUNT} running sessions in the list, not {len(running)} of {len(records)}")
    timer = lab.run_playbook("schedule_sessions", {})
    print(f"bench: list {listed.cost.wall:.2f} s, timer {timer.cost.wall:.2f} s", flush=True)
    return timer.cost.wall / listed.cost.wall


def growth(sessions: Sequence[Parts]) -> float:
    """Return the median of the last block of sessions as a multiple of that of the first."""
    first, last = (statistics.median(map(_total, block)) for block in (sessions[:BLOCK], sessions[-BLOCK:]))
    return last / first


def table(sessions: Sequence[Parts]) -> Iterator[str]:
    """Yield a line for each block of sessions, with the medians of all parts."""
    names = list(dict.fromkeys(name for parts in sessions for name in parts))
    yield f"{'sessions':<12}{'total':>9}" + "".join(f"{name:>13}" for name in names)
    for start in range(0, len(sessions), BLOCK):
        block = sessions[start : start + BLOCK]
        medians = [statistics.median(parts.get(name, 0.0) for parts in block) for name in names]
        cells = "".join(f"{seconds:13.3f}" for seconds in medians)
        yield f"{f'{start + 1}-{start + len(block)}':<12}{statistics.median(map(_total, block)):9.3f}{cells}"


def archive() -> bytes:
    """Return the program that creates and removes the sessions, as a zipapp."""
    files = {Path(PROGRAM): PROGRAM, **{Path(folder): f"{COLLECTION}/{folder}" for folder in PACKED}}
    sources = {
        f"{inside}/{path.relative_to(lab.ROOT / folder)}": path.read_text(encoding="utf-8")
        for folder, inside in files.items()
        for path in sorted((lab.ROOT / folder).rglob("*.py"))
        if path.name != "__init__.py"
    }
    packages = {str(parent) for name in sources for parent in PurePath(name).parents if parent.name}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        for package in sorted(packages):
            target.writestr(f"{package}/__init__.py", "")
        for name, text in {"__main__.py": MAIN, **sources}.items():
            target.writestr(name, text)
    return packed.getvalue()


def request(count: int, host: dict[str, Any]) -> dict[str, Any]:
    """Return the program's input: options of a session, and variables of an agent with capacity for that many."""
    problems = ValidationErrors()
    session = {
        "session_name": "bench-many",
        "session_image": lab.BUSYBOX,
        "session_cluster_size": CONTAINERS,
        "session_resources": {"cpu": 1, "mem": MEMORY},
    }
    options = parse_options(problems, session)
    problems.raise_if_any()
    return {
        "agent": AGENT,
        "count": count,
        "session": options,
        "settings": {**_defaults("agent"), **host, "agent_cpu_overcommit": count * CONTAINERS},
    }


def _defaults(role: str) -> dict[str, Any]:
    return dict(yaml.safe_load((lab.ROOT / "roles" / role / "defaults" / "main.yml").read_text()))


def _run_on_agent(count: int, meanwhile: Callable[[], object]) -> dict[str, list[Parts]]:
    """Create the sessions, call ``meanwhile``, remove them; return the seconds of each part of each session."""
    path = "/run/backendai-bench.pyz"
    input_json = shlex.quote(json.dumps(request(count, lab.host_variables(AGENT))))
    program = archive()
    line = f"trap 'rm -f {path}' EXIT; head -c {len(program)} > {path} && python3 {path} {input_json}"
    parts: dict[str, list[Parts]] = {"created": [], "removed": []}
    with subprocess.Popen(lab.ssh_command(AGENT, line), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        if not run.stdin or not run.stdout:
            raise BenchError("no pipe to the agent")
        run.stdin.write(program)
        run.stdin.flush()
        for text in run.stdout:
            report = json.loads(text)
            kind = parts[report["kind"]]
            kind.append(report["seconds"])
            if len(kind) % BLOCK == 0:
                print(f"bench: {report['kind']} {len(kind)} of {count}", flush=True)
            if len(parts["created"]) == count and not parts["removed"]:
                meanwhile()
                run.stdin.close()
    if run.returncode or len(parts["removed"]) != count:
        raise BenchError(
            f"{len(parts['created'])} of {count} sessions were created before the program exited: see above"
        )
    return parts


def _total(parts: Parts) -> float:
    """Return the seconds of a session; indented parts are included in others."""
    return sum(seconds for name, seconds in parts.items() if not name.startswith(" "))
