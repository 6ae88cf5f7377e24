"""Helpers to run playbooks on the lab, and commands on its hosts and in containers."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import shlex
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tests.integration.ansible_settings import ROOT, environment
from tests.integration.connections import Connections
from tests.integration.forked_ansible import run_forked
from tests.integration.internals import AGENT_STATE, BEFORE, HEALTH, IMAGES, OUTPUT, REGISTRIES, SESSIONS, STORAGE
from tests.integration.programs import run_line
from tests.lab.identity import Lab

#: The lab of this process: a second worker of pytest-xdist (`gw1`) has the second lab.
LAB = Lab(ROOT, int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) + 1)
INVENTORY = LAB.inventory
QUEUE = LAB.folder / "queue"
AGENTS = ("agent1", "agent2", "agent3")
PYTHON, BUSYBOX = "lab/python:1", "lab/busybox:1"
TIMEOUT = 900

#: The variable that names the output file, for playbooks that do not write a session record.
REPORTS = {
    "firewall_report": "firewall_report_path",
    "list_sessions": "session_list_path",
    "session_logs": "session_logs_path",
    "verify_isolation": "firewall_report_path",
    "verify_session": "session_report_path",
}

Kernel = dict[str, Any]
T = TypeVar("T")

#: How often each playbook was run by this process.
RUNS: Counter[str] = Counter()

_RECAP = re.compile(r"^(?P<host>\S+)\s+: ok=\d+\s+changed=(?P<changed>\d+)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Run:
    """The result of a playbook: its exit code, its output, and the record that it wrote."""

    code: int
    output: str
    record: Any

    @property
    def changed(self) -> int:
        """The number of changed tasks of all hosts, from the recap."""
        return sum(int(match["changed"]) for match in _RECAP.finditer(self.output))

    @property
    def hosts(self) -> set[str]:
        """The hosts in the recap."""
        return {match["host"] for match in _RECAP.finditer(self.output)}

    @property
    def text(self) -> str:
        """The output as one line, so that wrapped sentences can be searched for."""
        return unwrapped(self.output)


def unwrapped(text: str) -> str:
    """Return a text with all white space collapsed, as one line."""
    return " ".join(text.split())


def command(playbook: str, folder: Path, variables: Mapping[str, Any], *options: str) -> list[str]:
    """Return the command line that runs a playbook; the variables are written to a file in ``folder``."""
    path = folder / "variables.json"
    path.write_text(json.dumps(variables))
    line = ["ansible-playbook", "-i", str(INVENTORY), f"backendai.cluster.{playbook}", "-e", f"@{path}"]
    return [*line, *options]


def launch(line: Sequence[str]) -> subprocess.Popen[str]:
    """Start a playbook in a process group of its own, its output in a pipe."""
    return subprocess.Popen(
        line,
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ansible(*words: object, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run an Ansible program to completion, with any exit code; ``settings`` are added to its environment."""
    return subprocess.run(
        [str(word) for word in words],
        cwd=ROOT,
        env={**environment(), **settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def run_playbook(playbook: str, folder: Path, variables: Mapping[str, Any], *options: str) -> Run:
    """Run a playbook of the collection on the lab to completion; several may run at once."""
    RUNS[playbook] += 1
    workdir = Path(tempfile.mkdtemp(dir=folder))
    report = workdir / "report.json"
    report_variable = REPORTS.get(playbook, "session_record_path")
    extra_vars = dict(variables) if playbook.startswith("provision") else {report_variable: str(report), **variables}
    code, output = run_forked(command(playbook, workdir, extra_vars, *options), workdir / "output", TIMEOUT)
    return Run(code, output, json.loads(report.read_text()) if report.exists() else None)


def run_counts() -> str:
    """Return how often each playbook was run, as a line for the end of a report."""
    return "playbooks: " + ", ".join(f"{playbook} {count}" for playbook, count in sorted(RUNS.items()))


def in_parallel(*calls: Callable[[], T]) -> list[T]:
    """Make calls at the same time and return their results in order."""
    with ThreadPoolExecutor(len(calls) or 1) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


@functools.cache
def host_variables(host: str) -> Mapping[str, Any]:
    """Return the inventory variables of a host of the lab."""
    inventory = yaml.safe_load(INVENTORY.read_text())["all"]
    groups = inventory["children"].values()
    return {**inventory["vars"], **next(group["hosts"][host] for group in groups if host in group["hosts"])}


@functools.cache
def address(host: str) -> str:
    """Return the address of a host of the lab."""
    return str(host_variables(host)["ansible_host"])


def ssh(host: str, line: str) -> list[str]:
    """Return the SSH command that runs a shell line on a host of the lab."""
    variables = host_variables(host)
    options = ["-i", variables["ansible_ssh_private_key_file"], *shlex.split(variables["ansible_ssh_common_args"])]
    return ["ssh", *options, "-o", "BatchMode=yes", f"{variables['ansible_user']}@{variables['ansible_host']}", line]


_connections = Connections(partial(ssh, line=""))


def run_on(host: str, line: str, *, check: bool = True) -> str:
    """Run a shell line on a host of the lab over SSH and return its output."""
    command, *words = ssh(host, line)
    with _connections.shared(host) as options:
        process = subprocess.run(
            [command, *options, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    if check and process.returncode:
        raise AssertionError(f"{host}: {line!r} ended with {process.returncode}: {process.stdout}{process.stderr}")
    return process.stdout + process.stderr


def run_on_all(line: str, hosts: Sequence[str] = AGENTS, *, check: bool = True) -> list[str]:
    """Run a shell line on all agents, or on other hosts, at the same time; return the output of each."""
    return in_parallel(*[partial(run_on, host, line, check=check) for host in hosts])


def memory_share(parts: int) -> int:
    """Return the memory per container, in bytes, with which exactly ``parts`` containers fit on each agent."""
    total = min(map(int, run_on_all("awk '/^MemTotal:/ {print $2}' /proc/meminfo"))) << 10
    return (total - (512 << 20)) // parts


def run_in(kernel: Mapping[str, Any], *words: str, user: str = "", check: bool = True) -> str:
    """Run a command in a container, given its entry in a session's record, and return its output.

    It is user work there, unless another ``user`` is given: 0 is root with NET_RAW and SYS_NICE.
    """
    options = ["--user", user] if user else []
    return run_on(kernel["agent"], shlex.join(["docker", "exec", *options, kernel["container"], *words]), check=check)


def in_network(kernel: Mapping[str, Any], line: str) -> str:
    """Return a shell line that runs another in the network of a container; it has to run on the container's agent.

    It is root there, with all capabilities, so it may do more than any process of the container.
    """
    pid = f"$(docker inspect --format '{{{{.State.Pid}}}}' {kernel['container']})"
    return f"nsenter --net --target {pid} -- {line}"


def agent_state() -> dict[str, str]:
    """Return everything on the agents that a session could leave behind, as text that can be compared."""
    left_out = (REGISTRIES, IMAGES, BEFORE, OUTPUT, HEALTH, STORAGE)
    return dict(zip(AGENTS, run_on_all(run_line("traces", AGENT_STATE, *left_out)), strict=True))


def queue_entries() -> dict[str, dict[str, Any]]:
    """Return the queue entries of all sessions, by id."""
    entries = (json.loads(path.read_text()) for path in sorted(QUEUE.glob("[!.]*.json")))
    return {entry["id"]: entry for entry in entries}


def stored_sessions() -> dict[str, list[dict[str, Any]]]:
    """Return the stored state of the sessions on each agent."""
    line = f"find {SESSIONS} -name session.json -exec cat {{}} ';' -exec echo ';'"
    stored = [[json.loads(session) for session in text.splitlines() if session] for text in run_on_all(line)]
    return dict(zip(AGENTS, stored, strict=True))
