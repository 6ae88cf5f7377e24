"""The hosts of Molecule scenarios: new ones for each run, beside those of the lab and at addresses of their own.

They are in the lab's engine and network, made from its host images. Their labels are not the lab's, so ``up`` leaves
them alone; ``down`` removes them, too.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.lab.command import LabError, in_parallel, step
from tests.lab.engine import Engine
from tests.lab.host_image import ARCHIVE_PACKAGES_OF_SUITE
from tests.lab.hosts import authorized_keys_archive, await_ssh, host_arguments, known_host
from tests.lab.identity import LABEL, Host, Lab, State
from tests.lab.leftovers import remove_folder

#: The label of all these hosts, with the lab's id; and that of one, with the scenario's name.
OWNER_LABEL = f"{LABEL}.scenarios"
SCENARIO_LABEL = f"{LABEL}.scenario"
#: Their addresses in the underlay; those of the lab are lower, and 250 stays unused.
OFFSETS = range(200, 250)
#: How many hosts a scenario may have, so that two run at a time on a small machine.
MOST_HOSTS = 2

_NAME = re.compile(r"[a-z][a-z0-9-]*\Z")
#: Addresses follow each other, because an SSH client keeps connections to an earlier host for a minute.
_NEXT = "next-offset"


def scenario_folder(lab: Lab, scenario: str) -> Path:
    """Return the folder of a scenario's state."""
    return lab.folder / "scenarios" / scenario


def parse_hosts(scenario: str, words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the name and the suite of each host, given as NAME:SUITE."""
    hosts = [(name, suite) for name, _colon, suite in (word.partition(":") for word in words)]
    names = [scenario, *(name for name, _suite in hosts)]
    for name in names:
        if not _NAME.match(name):
            raise LabError(f"'{name}' is no name of a scenario or host: use lower-case letters, digits and -")
    for word, (_name, suite) in zip(words, hosts, strict=True):
        if suite not in ARCHIVE_PACKAGES_OF_SUITE:
            raise LabError(
                f"{word} is no host of the scenario {scenario}: its suite is {' or '.join(ARCHIVE_PACKAGES_OF_SUITE)}"
            )
    if len(hosts) > MOST_HOSTS or len(set(names[1:])) < len(hosts):
        raise LabError(f"the scenario {scenario} has {', '.join(words)}: make it {MOST_HOSTS} different hosts at most")
    return hosts


def create_scenario_hosts(
    engine: Engine, state: State, scenario: str, wanted: Sequence[tuple[str, str]], inventory: Path
) -> None:
    """Create the hosts of a scenario in place of those of an earlier run, and write their inventory."""
    lab = engine.lab
    remove_scenario_hosts(engine, scenario)
    offsets = _free_offsets(engine)
    hosts = [Host(name, scenario, suite, next(offsets)) for name, suite in wanted]
    with step(f"hosts of the scenario {scenario}"):
        lines = in_parallel(*(partial(_create, engine, state, host, hosts) for host in hosts))
    folder = scenario_folder(lab, scenario)
    folder.mkdir(parents=True)
    (folder / "known_hosts").write_text("".join(lines))
    inventory.write_text(json.dumps(scenario_inventory(lab, state, scenario, hosts), indent=2) + "\n")


def remove_scenario_hosts(engine: Engine, scenario: str | None = None) -> None:
    """Remove the hosts and the folder of a scenario, or of all."""
    for container, (_offset, owner) in _containers(engine).items():
        if scenario in {owner, None}:
            engine.docker("rm", "--force", "--volumes", container)
    remove_folder(scenario_folder(engine.lab, scenario or ""))


def scenario_inventory(lab: Lab, state: State, scenario: str, hosts: Sequence[Host]) -> dict[str, object]:
    """Return the inventory: how to log in, and what concerns hosts of a lab alone."""
    known_hosts = scenario_folder(lab, scenario) / "known_hosts"
    options = f"-o UserKnownHostsFile={known_hosts} -o GlobalKnownHostsFile=/dev/null"
    variables = {
        "ansible_user": "root",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_private_key_file": str(lab.key),
        "ansible_ssh_common_args": f"{options} -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes",
        "session_queue_path": str(scenario_folder(lab, scenario) / "queue"),
        "manager_wheels": str(lab.wheels),
        # The lab's package archive never changes.
        **{f"{role}_apt_cache_valid_time": 315360000 for role in ("agent", "firewall", "gateway", "manager")},
    }
    return {
        "all": {"vars": variables, "hosts": {host.name: {"ansible_host": str(state.address(host))} for host in hosts}}
    }


def _create(engine: Engine, state: State, host: Host, others: Sequence[Host]) -> str:
    """Create and start one host; return its line of known_hosts when it has booted."""
    lab, scenario = engine.lab, host.group
    container = f"{scenario}-{host.name}" if state.engine == "private" else f"{lab.name}-{scenario}-{host.name}"
    labels = (f"--label={SCENARIO_LABEL}={scenario}", f"--label={LABEL}.offset={host.offset}")
    arguments = host_arguments(lab, state, host, others, f"{OWNER_LABEL}={lab.id}")
    engine.docker("create", "--name", container, *labels, *arguments)
    engine.docker("cp", "-", f"{container}:/", stdin=authorized_keys_archive(lab))
    engine.docker("start", container)
    await_ssh(state.address(host), host.name)
    engine.docker("exec", container, "sh", "-c", "systemctl is-system-running --wait || true")
    return known_host(engine, container, state.address(host), host)


def _containers(engine: Engine) -> dict[str, tuple[int, str]]:
    """Return the offset and the scenario of each host of scenarios, by container."""
    shape = f'{{{{.Names}}}}\t{{{{.Label "{LABEL}.offset"}}}}\t{{{{.Label "{SCENARIO_LABEL}"}}}}'
    lines = engine.docker("ps", "--all", "--filter", f"label={OWNER_LABEL}={engine.lab.id}", "--format", shape)
    entries = (line.split("\t") for line in lines.splitlines())
    return {name: (int(offset), scenario) for name, offset, scenario in entries}


def _free_offsets(engine: Engine) -> Iterator[int]:
    """Yield addresses that no host has, beginning after the last one that was given."""
    note = engine.lab.folder / "scenarios" / _NEXT
    first = OFFSETS.start
    with contextlib.suppress(FileNotFoundError, ValueError):
        first = int(note.read_text())
    taken = {offset for offset, _scenario in _containers(engine).values()}
    for offset in [*range(first, OFFSETS.stop), *range(OFFSETS.start, first)]:
        if offset in OFFSETS and offset not in taken:
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(f"{offset + 1}\n")
            yield offset
    raise LabError("hosts of scenarios have all addresses: remove them with `make lab-down`")
