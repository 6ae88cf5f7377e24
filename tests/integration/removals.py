"""New hosts that are provisioned and given back, and how they differ from what they were before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.integration.interruptions import kill_at_task
from tests.integration.laboratory import Run, command, in_parallel, run_playbook
from tests.integration.programs import run_line
from tests.integration.spare_hosts import SpareHost

Snapshot = Mapping[str, str]

LOST_ID = "0b7f1f5c-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
"""The id of a session that only its traces on a host tell of."""


class Hosts:
    """New hosts with their inventory, and what they were before."""

    def __init__(self, hosts: Sequence[SpareHost], options: list[str], folder: Path) -> None:
        self.hosts, self._folder = hosts, folder
        self._options = [*options, "--limit", ",".join(["localhost", *(host.name for host in hosts)])]
        self.before = self.snapshots()

    def first_in(self, group: str, folder: Path) -> Hosts:
        """Return the first of them alone, in another group, too, as it is now."""
        first, path = self.hosts[0], folder / f"{group}.json"
        path.write_text(json.dumps({group: {"hosts": {first.name: {}}}}))
        return Hosts([first], [*self._options, "-i", str(path)], folder)

    def snapshots(self) -> list[Snapshot]:
        """Return what is on each host."""
        texts = in_parallel(*(partial(host.run, run_line("snapshot")) for host in self.hosts))
        return [json.loads(text) for text in texts]

    def differences(self) -> list[str]:
        """Return what is not as it was before, one line for each."""
        return [
            f"{host.name} {subject}: {before.get(subject)!r} -> {after.get(subject)!r}"
            for host, before, after in zip(self.hosts, self.before, self.snapshots(), strict=True)
            for subject in sorted(before.keys() | after.keys())
            if before.get(subject) != after.get(subject)
        ]

    def play(self, playbook: str, **variables: object) -> Run:
        """Run a playbook on them alone, although the hosts of the lab are in the inventory, too."""
        return run_playbook(playbook, self._folder, self._variables(variables), *self._options)

    def check(self, playbook: str) -> Run:
        """Return what a playbook would do to them."""
        return run_playbook(playbook, self._folder, self._variables({}), *self._options, "--check", "--diff")

    def kill(self, playbook: str, task: str, **variables: object) -> None:
        """Run a playbook on them, and kill it when a task starts."""
        kill_at_task(task, command(playbook, self._folder, self._variables(variables), *self._options))

    def state_of(self, session_id: str) -> object:
        """Return the state of a session that was started on them."""
        return json.loads((self._folder / "queue" / f"{session_id}.json").read_text())["state"]

    def _variables(self, variables: Mapping[str, object]) -> dict[str, object]:
        return {"agent_names": [host.name for host in self.hosts], **variables}
