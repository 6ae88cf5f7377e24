"""New hosts that are provisioned with other values than the defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.laboratory import Run, run_playbook
from tests.integration.spare_hosts import SpareHost, spare_hosts
from tests.lab.identity import Host

#: An index of packages that is old, and a source that cannot be read: who updates the index fails.
OLD_INDEX = (
    "rm -f /var/lib/apt/periodic/update-success-stamp; touch -d '2 days ago' /var/lib/apt/lists;"
    " echo 'deb [trusted=yes] file:/nowhere ./' > /etc/apt/sources.list.d/nowhere.list"
)
TEN_YEARS = 315360000


@dataclass(frozen=True)
class OwnHost:
    """A host with variables of its own, which all playbooks are run with, and the run that has provisioned it."""

    host: SpareHost
    variables: Mapping[str, Any]
    options: tuple[str, ...]
    folder: Path
    provisioned: Run

    def run(self, line: str) -> str:
        """Run a shell line on the host as root, without a login, and return its output."""
        return self.host.run(line)

    def play(self, playbook: str, *options: str, **variables: object) -> Run:
        """Run a playbook on it alone."""
        return run_playbook(playbook, self.folder, {**self.variables, **variables}, *self.options, *options)

    def shown(self, unit: str, *properties: str) -> list[str]:
        """Return properties of a unit, as systemd says them."""
        return [self.run(f"systemctl show --value --property={each} {unit}").strip() for each in properties]


@contextmanager
def own_host(
    folder: Path, wanted: Host, playbook: str, variables: Mapping[str, Any], prepare: str = "true"
) -> Iterator[OwnHost]:
    """Provision a new host, after a shell line has prepared it; variables may be functions of the host."""
    with spare_hosts(folder, wanted) as ((host,), options):
        host.run(f"{OLD_INDEX}; {prepare}")
        known = {name: value(host) if callable(value) else value for name, value in variables.items()}
        limited = (*options, "--limit", f"localhost,{host.name}")
        provisioned = run_playbook(playbook, folder, known, *limited)
        assert provisioned.code == 0, provisioned.output
        yield OwnHost(host, known, limited, folder, provisioned)
