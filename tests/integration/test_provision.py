"""What the lab was provisioned as; the scenarios of extensions/molecule show what the roles make of a host."""

from __future__ import annotations

import re

import pytest

from tests.integration.ansible_settings import ROOT
from tests.integration.laboratory import AGENTS, run_on_all
from tests.lab.identity import HOSTS

pytestmark = pytest.mark.provisioning

#: The engine of each release of Debian, as README says.
TESTED = dict(re.findall(r"(Debian \d+) \(Docker (\d+\.\d+)\)", (ROOT / "README.md").read_text()))
RELEASES = {"bookworm": "Debian 12", "trixie": "Debian 13"}


def test_the_lab_has_two_engines_and_two_pythons() -> None:
    engines = dict(zip(AGENTS, run_on_all("docker version --format '{{.Server.Version}}'"), strict=True))
    assert [*TESTED] == [*RELEASES.values()]
    for host in HOSTS:
        if host.name in AGENTS and host.suite in RELEASES:
            assert engines[host.name].startswith(f"{TESTED[RELEASES[host.suite]]}.")
    assert len({*engines.values()}) == 2
    assert len(set(run_on_all("python3 -c 'import sys; print(sys.version_info[:2])'"))) == 2
