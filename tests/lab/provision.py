"""Provisions the lab's hosts with the playbooks of the collection: different hosts at the same time."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.lab.command import LabError, in_parallel, run_logged, step
from tests.lab.identity import HOSTS, Lab
from tests.lab.leftovers import end_processes, join_cgroup_line, remove_folder
from tests.lab.wheels import ensure_wheels

ROOT = Path(__file__).resolve().parents[2]
ANSIBLE = ROOT / ".venv" / "bin" / "ansible-playbook"
#: The part of the lab's cgroup for these runs of Ansible, and for the SSH connections that they leave open.
RUNS = "provision"
#: What a group's hosts are made from. A manager has a copy of everything that runs.
_HOST_PARTS = ("plugins", "roles/accelerator", "roles/firewall", "roles/manager")
PARTS = {
    "managers": ("plugins", "roles", "playbooks", "tests/lab/policy.yml"),
    "agents": (*_HOST_PARTS, "roles/agent", "playbooks/provision_agents.yml"),
    "gateways": (*_HOST_PARTS, "roles/gateway", "playbooks/provision_gateways.yml"),
}
#: What a group's playbook does not do before the managers' has ended.
_FIRST = {"managers": (), "agents": ("--skip-tags", "access"), "gateways": ("--skip-tags", "access")}
#: Lines of a log that are shown when a playbook fails.
SHOWN = 25


def ensure_provisioned(lab: Lab, load_images: Callable[[], object] | None = None) -> None:
    """Run the playbooks of the groups whose hosts are not as the current collection makes them.

    Agents and gateways let managers in at the end, when the managers' playbook has made the keys that they accept. At
    that time the agents' engines run, so images are loaded then.
    """
    last = [load_images] if load_images else []
    if not lab.inventory.exists():
        raise LabError("the lab is not up: run `python3 -m tests.lab up` first")
    wanted = {group: _digest(lab, group) for group in PARTS}
    present = _read_note(lab)
    groups = [group for group in PARTS if present.get(group) != wanted[group]]
    if not groups:
        in_parallel(*last)
        return
    ensure_wheels(lab)
    remove_runs(lab)  # of a killed run
    try:
        with step("hosts provisioned"):
            _make_kit(lab)
            in_parallel(*(partial(_provision, lab, group, *_FIRST[group]) for group in groups))
            later = [group for group in groups if _FIRST[group]]
            in_parallel(*last, *(partial(_provision, lab, group, "--tags", "access") for group in later))
    finally:
        remove_runs(lab)
    lab.provisioned.write_text(json.dumps(wanted, indent=2) + "\n")


def remove_runs(lab: Lab) -> None:
    """End the runs of Ansible, and the SSH connections that they have left open."""
    end_processes(lab, RUNS)
    remove_folder(lab.connections)


def _read_note(lab: Lab) -> dict[str, str]:
    """Return the digests that the hosts were provisioned with, by group."""
    try:
        note: dict[str, str] = json.loads(lab.provisioned.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return note


def _digest(lab: Lab, group: str) -> str:
    """Return a digest of what a group's hosts are made from."""
    digest = hashlib.sha256()
    for path in [*sorted(_files(group)), lab.inventory, lab.manager_inventory]:
        digest.update(f"{path}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _files(group: str) -> Iterator[Path]:
    for part in (ROOT / name for name in PARTS[group]):
        found = [part] if part.is_file() else part.rglob("*")
        yield from (path for path in found if path.is_file() and path.suffix != ".pyc")


def _make_kit(lab: Lab) -> None:
    """Make the runtime kit of agents that need it as a file, unless it is there."""
    if any(host.needs_kit for host in HOSTS) and not lab.kit.exists():
        _run(lab, "kit", "build_kit", "-e", f"agent_kit_path={lab.kit}")


def _provision(lab: Lab, group: str, *options: str) -> None:
    """Run the playbook of a group of hosts, or a part of it."""
    part = "access" if "--tags" in options else ""
    _run(lab, group, f"provision_{group}", *options, part=part)


def _run(lab: Lab, title: str, name: str, *options: str, part: str = "") -> None:
    """Run a playbook, with SSH connections of its own."""
    log = lab.logs / f"{name}{part and f'-{part}'}.log"
    log.unlink(missing_ok=True)
    environment = {**os.environ, "ANSIBLE_SSH_CONTROL_PATH_DIR": str(lab.connections / title)}
    playbook = f"backendai.cluster.{name}"
    command = (str(ANSIBLE), "-i", str(lab.inventory), playbook, *options)
    enter = f'{join_cgroup_line(lab, RUNS)}; exec "$@"'
    try:
        with step(f"  {title}{part and f': {part}'}"):
            run_logged(log, "sh", "-euc", enter, command[0], *command, env=environment)
    except LabError as error:
        failure = failed_task(log.read_text(errors="replace"))
        raise LabError(f"{playbook} failed, its log is {log}:\n{failure}") if failure else error from None


def failed_task(log: str) -> str:
    """Return the first task that failed in Ansible's output, with what it says; empty if none did."""
    lines = log.splitlines()
    failed = next((number for number, line in enumerate(lines) if line.startswith(("fatal: ", "[ERROR]"))), None)
    if failed is None:
        return ""
    start = next((number for number in range(failed, -1, -1) if lines[number].startswith("TASK [")), failed)
    return "\n".join(lines[start : start + SHOWN])
