"""The playbook verify_isolation, run by ansible-playbook; a program stands in for ssh and the hosts behind it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.plugins.action.play_site import TEAMS, PlaySite

# Hosts answer with the file of the request's name; one without it cannot be reached.
ACT = """
if not (folder / name).exists():
    go_away()
result = json.loads((folder / name).read_text())
"""
GROUPS = {"agents": "agent1", "gateways": "gateway1", "managers": "manager1", "users": "user1"}
ADDRESSES = {name: f"192.0.2.{number}" for number, name in enumerate(GROUPS.values(), 1)}
SAID = {"udp_ports": [], "expected": {}, "unread": "", "firewall_mode": "enforce"}
FOLDERS: dict[str, Any] = {"users": [], "problems": [], "unprotected": []}


class Site(PlaySite):
    """A site with a host of each kind."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ACT, {group: [name] for group, name in GROUPS.items()})
        self.variables |= {"firewall_report_path": f"{folder}/report.json", "firewall_probe_ports": "22"}
        for kind in ("agent", "gateway"):
            self.answer("targets", f"{kind}1", {**SAID, "addresses": {ADDRESSES[f"{kind}1"]: kind}})
        probed = {"answers": [], "missing": {}, "unresolved": [], "on_link": True}
        self.answer("probe", "user1", {**probed, "next_hops": {ADDRESSES["agent1"]: "", ADDRESSES["gateway1"]: ""}})
        self.answer("inside", "agent1", {"probes": [], "skipped": 0})
        self.answer("policy", "manager1", {"folders": [{"source": "/srv/data", "read_only": True}]})
        for host in ("agent1", "manager1"):
            self.answer("policy_folders", host, FOLDERS)

    def answer(self, phase: str, host: str, answer: dict[str, Any]) -> None:
        (self.folder / f"{host}:{phase}").write_text(json.dumps(answer))

    def verify(self, *arguments: str, **settings: str) -> tuple[int, str]:
        """Run the playbook; return its exit code and its output."""
        return self.play("backendai.cluster.verify_isolation", *arguments, **settings)

    @property
    def report(self) -> dict[str, Any] | None:
        path = self.folder / "report.json"
        return json.loads(path.read_text()) if path.exists() else None


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@TEAMS
def test_a_host_that_is_away_is_a_finding_with_the_settings_that_a_team_has(
    site: Site, settings: dict[str, str]
) -> None:
    (site.folder / "agent1:inside").unlink()
    code, output = site.verify(**settings)
    assert code == 2
    assert "isolation check failed: 1 check was inconclusive." in output
    assert "Probe agent1: " in output
    report = site.report
    assert report is not None
    assert "no route to host" in report["inconclusive"][0]["reason"]
    assert site.asked == [
        *("agent1:inside", "agent1:policy_folders:look", "agent1:policy_folders:look", "agent1:targets"),
        "gateway1:targets",
        *("manager1:policy:look", "manager1:policy_folders:look"),
        *("user1:probe", "user1:probe"),
    ]


def test_an_isolated_cluster_passes(site: Site) -> None:
    code, output = site.verify()
    assert code == 0, output
    assert "Only the gateway answers user1, at 2 addresses." in output


def test_check_mode_shows_the_plan_and_probes_nothing(site: Site) -> None:
    code, output = site.verify("--check")
    assert (code, site.report) == (0, None), output
    assert "agent1: 192.0.2.1: TCP ports 22 would be probed." in output
    assert site.asked == ["agent1:targets:look", "gateway1:targets:look"]
