"""Everything that lacks is in one failure, and what is to be installed in the answer."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.host_record import HostRecord
from ansible_collections.backendai.cluster.plugins.module_utils._host.packages import Package
from ansible_collections.backendai.cluster.plugins.module_utils._requirements.requirements import Host, Wanted
from ansible_collections.backendai.cluster.plugins.modules import host_requirements
from tests.unit.module_runs import result_of

FAMILY = {"name": "Debian 13", "manager": "apt", "install": "apt-get install", "programs": {"nft": "nftables"}}
GATEWAY = {"role": "gateway", "family": FAMILY, "wanted": {"packages": ["haproxy", "nftables"]}}
SOURCES = {name: Package(candidate=version) for name, version in {"haproxy": "3.0.11", "nftables": "1.1.3"}.items()}


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the host that is found, as the last of a list to which what was asked is added."""
    found: list[Any] = [Host(packages=SOURCES)]

    def look(wanted: Wanted, kept: str) -> Host:
        host = found[-1]
        found.extend([(wanted, kept), host])
        return Host(*host)

    monkeypatch.setattr(host_requirements, "look", look)
    monkeypatch.setattr(host_requirements, "read_record", lambda: HostRecord(agent_engine="present"))
    return found


def test_a_host_that_has_all_gets_the_names_of_packages(looked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of("host_requirements", GATEWAY, capsys, check_mode=True)
    assert (result["changed"], result["packages"], result["engine"]) == (False, ["haproxy", "nftables"], "")
    wanted, kept = looked[1]
    assert (wanted.role, wanted.family.programs, kept) == ("gateway", {"nft": "nftables"}, "present")


def test_all_that_lacks_is_in_one_failure(looked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    looked.append(Host(packages={"nftables": Package("0.9.3")}, has_systemd=False))
    result = result_of("host_requirements", GATEWAY, capsys)
    assert result["failed"]
    assert len(result["problems"]) == 3
    assert result["msg"] == f"This host lacks 3 things: {' '.join(result['problems'])}"


def test_one_thing_that_lacks_is_its_sentence(looked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    looked.append(Host(packages=SOURCES, has_systemd=False))
    assert result_of("host_requirements", GATEWAY, capsys)["msg"] == (
        "systemd does not run on this host (Debian 13): use a host that it boots."
    )
