"""The playbook verify_isolation, run by ansible-playbook; a program stands in for ssh and the hosts behind it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.backendai.cluster.plugins.module_utils._program.launcher import MARK
from tests.integration.ansible_settings import ROOT
from tests.unit.plugins.action.test_session_info_plays import environment

#: Hosts that answer with the file PHASE-HOST; one without it cannot be reached.
SSH = """#!{python}
import json, sys
from pathlib import Path

folder = Path({folder!r})
host = next(word for word in sys.argv if word in {hosts!r})
stream = sys.stdin.buffer
stream.read(int(stream.readline()))
stream.read(json.loads(stream.readline())["size"])
request = json.loads(stream.read())
answer = folder / f"{{request['phase']}}-{{host}}"
with (folder / "asked").open("a") as asked:
    asked.write(f"{{request['phase']}}:{{host}}:{{'look' if request['check_mode'] else 'do'}}\\n")
if not answer.exists():
    print("no route to host", file=sys.stderr)
    sys.exit(255)
print({mark!r} + json.dumps({{"result": json.loads(answer.read_text())}}))
"""
GROUPS = {"agents": "agent1", "gateways": "gateway1", "managers": "manager1", "users": "user1"}
ADDRESSES = {name: f"192.0.2.{number}" for number, name in enumerate(GROUPS.values(), 1)}
SAID = {"udp_ports": [], "expected": {}, "unread": "", "firewall_mode": "enforce"}
FOLDERS: dict[str, Any] = {"users": [], "problems": [], "unprotected": []}


class Site:
    """A folder with an inventory of a host of each kind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        hosts = list(ADDRESSES)
        (folder / "ssh").write_text(SSH.format(python=sys.executable, folder=str(folder), hosts=hosts, mark=MARK))
        (folder / "ssh").chmod(0o755)
        for kind in ("agent", "gateway"):
            self.answer("targets", f"{kind}1", {**SAID, "addresses": {ADDRESSES[f"{kind}1"]: kind}})
        probed = {"answers": [], "missing": {}, "unresolved": [], "on_link": True}
        self.answer("probe", "user1", {**probed, "next_hops": {ADDRESSES["agent1"]: "", ADDRESSES["gateway1"]: ""}})
        self.answer("inside", "agent1", {"probes": [], "skipped": 0})
        self.answer("policy", "manager1", {"folders": [{"source": "/srv/data", "read_only": True}]})
        for host in ("agent1", "manager1"):
            self.answer("policy_folders", host, FOLDERS)
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        variables = {"ansible_ssh_executable": str(folder / "ssh"), "ansible_python_interpreter": "/usr/bin/python3"}
        # The name stands on the command line of ssh.
        groups = {group: {"hosts": {name: {}}, "vars": variables} for group, name in GROUPS.items()}
        (folder / "inventory.yml").write_text(
            yaml.safe_dump({"all": {"hosts": {"localhost": local}, "children": groups}})
        )

    def answer(self, phase: str, host: str, answer: dict[str, Any]) -> None:
        (self.folder / f"{phase}-{host}").write_text(json.dumps(answer))

    def verify(self, *arguments: str, **settings: str) -> tuple[int, str]:
        """Run the playbook; return its exit code and its output."""
        paths = ["-e", f"firewall_report_path={self.folder}/report.json", "-e", "firewall_probe_ports=22"]
        line = [sys.executable, "-m", "ansible", "playbook", "-i", str(self.folder / "inventory.yml"), *paths]
        line += ["backendai.cluster.verify_isolation", *arguments]
        run = subprocess.run(line, cwd=ROOT, env=environment(settings), capture_output=True, text=True, check=False)
        return run.returncode, run.stdout + run.stderr

    @property
    def report(self) -> dict[str, Any] | None:
        path = self.folder / "report.json"
        return json.loads(path.read_text()) if path.exists() else None

    @property
    def asked(self) -> list[str]:
        """What hosts were asked, in any order."""
        return sorted((self.folder / "asked").read_text().split())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize(
    "settings",
    [{}, {"ANSIBLE_ANY_ERRORS_FATAL": "True"}, {"ANSIBLE_STRATEGY": "free"}],
    ids=["as usual", "any_errors_fatal", "strategy: free"],
)
def test_a_host_that_is_away_is_a_finding_with_the_settings_that_a_team_has(
    site: Site, settings: dict[str, str]
) -> None:
    (site.folder / "inside-agent1").unlink()
    code, output = site.verify(**settings)
    assert code == 2
    assert "isolation check failed: 1 check was inconclusive." in output
    assert "Probe agent1: " in output
    report = site.report
    assert report is not None
    assert "no route to host" in report["inconclusive"][0]["reason"]
    assert site.asked == [
        "inside:agent1:do",
        "policy:manager1:look",
        *["policy_folders:agent1:look"] * 2,
        "policy_folders:manager1:look",
        *["probe:user1:do"] * 2,
        "targets:agent1:do",
        "targets:gateway1:do",
    ]


def test_an_isolated_cluster_passes(site: Site) -> None:
    code, output = site.verify()
    assert code == 0, output
    assert "Only the gateway answers user1, at 2 addresses." in output


def test_check_mode_shows_the_plan_and_probes_nothing(site: Site) -> None:
    code, output = site.verify("--check")
    assert (code, site.report) == (0, None), output
    assert "agent1: 192.0.2.1: TCP ports 22 would be probed." in output
    assert site.asked == ["targets:agent1:look", "targets:gateway1:look"]
