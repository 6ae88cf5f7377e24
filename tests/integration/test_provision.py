"""What the lab was provisioned as; the scenarios of extensions/molecule show what the roles make of a host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.ansible_settings import ROOT
from tests.integration.laboratory import AGENTS, run_on, run_on_all, run_playbook
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


def test_all_that_a_host_lacks_is_said_in_one_run_and_nothing_is_changed(tmp_path: Path) -> None:
    lacking = {"agent_packages": ["no-such-package", "nor-this=1"], "agent_engine": "docker-ce"}
    look = "sha256sum /var/lib/backendai/before.json; dpkg-query --show | sha256sum"
    before = run_on("agent3", look)
    run = run_playbook("provision_agents", tmp_path, lacking, "--limit", "agent3", "--tags", "packages")
    assert run.code != 0
    text = " ".join(run.output.split())
    for said in (
        "do not have no-such-package, nor-this",
        "do not have docker-ce: add the package source of docker.com first",
        "dockerd of the package docker.io, and docker-ce would take its place",
    ):
        assert said in text
    assert run_on("agent3", look) == before
