"""Hosts that are not provisioned, for tests that need a new one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.integration.laboratory import LAB, host_variables, in_parallel
from tests.lab.engine import Engine
from tests.lab.hosts import container_name, remove_spare_host, start_spare_host
from tests.lab.identity import Host, load_state
from tests.lab.session_images import load_archive


class SpareHost:
    """A new host; ``run`` runs a shell line there as root, without a login."""

    def __init__(self, engine: Engine, host: Host) -> None:
        state = load_state(engine.lab)
        assert state, "the lab is not up"
        self.name, self.host, self._engine, self._state = host.name, host, engine, state
        self.address = str(state.address(host))

    def start(self) -> str:
        """Create the host, and return its line of known_hosts."""
        return start_spare_host(self._engine, self._state, self.host)

    def remove(self) -> None:
        """Remove the host."""
        remove_spare_host(self._engine, self._state, self.host)

    def copy(self, source: Path, target: str) -> None:
        """Copy what is in a folder into one of the host, which has it."""
        name = container_name(self._state, self._engine.lab, self.host)
        self._engine.docker("cp", f"{source}/.", f"{name}:{target}")

    def load_images(self) -> None:
        """Load the session images of the lab on the host, which has an engine."""
        name = container_name(self._state, self._engine.lab, self.host)
        load_archive(self._engine, self._engine.lab.images / "sessions.tar", self.host, name)

    def run(self, line: str) -> str:
        """Run a shell line on the host, and return its output."""
        return self._engine.docker("exec", container_name(self._state, self._engine.lab, self.host), "sh", "-c", line)


@contextlib.contextmanager
def spare_hosts(
    folder: Path, *wanted: Host, variables: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[tuple[Sequence[SpareHost], list[str]]]:
    """Yield new hosts, and the options of playbooks for an inventory that adds them to that of the lab.

    Some have ``variables`` there, by the names of the hosts.
    """
    state = load_state(LAB)
    assert state, "the lab is not up"
    hosts = [SpareHost(Engine(LAB, state.docker_host), host) for host in wanted]
    try:
        known = in_parallel(*(host.start for host in hosts))
        known_hosts = folder / "known_hosts"
        known_hosts.write_text(LAB.known_hosts.read_text() + "".join(known))
        yield hosts, ["-i", str(_inventory(folder, hosts, known_hosts, variables or {}))]
    finally:
        in_parallel(*(partial(_remove, host) for host in hosts))


def _remove(host: SpareHost) -> None:
    with contextlib.suppress(Exception):
        host.remove()


def _inventory(
    folder: Path, hosts: Sequence[SpareHost], known_hosts: Path, own: Mapping[str, Mapping[str, Any]]
) -> Path:
    """Write the inventory of these hosts."""
    options = host_variables("agent1")["ansible_ssh_common_args"]
    login = options.replace(str(LAB.known_hosts), str(known_hosts))
    groups: dict[str, Any] = {}
    for host in hosts:
        addresses = {"ansible_host": host.address, "agent_underlay_address": host.address}
        variables = {**addresses, **own.get(host.name, {})}
        groups.setdefault(host.host.group, {"hosts": {}})["hosts"][host.name] = variables
    values = {"ansible_ssh_common_args": login, "session_queue_path": str(folder / "queue")}
    path = folder / "spare.yml"
    path.write_text(yaml.safe_dump({"all": {"vars": values, "children": groups}}))
    return path
