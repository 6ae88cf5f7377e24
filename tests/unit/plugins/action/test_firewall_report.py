"""The actions firewall_traffic and firewall_report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.action import firewall_report, firewall_traffic
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_action import HostAction
from tests.unit.plugins.action.conftest import Run

SSH = {"source": "192.0.2.9", "protocol": "tcp", "port": 22, "destination": None, "packets": 3, "program": "sshd"}
REPLY = {"changed": False, "mode": "report", "traffic": [SSH], "unlisted": 0}


@pytest.mark.parametrize(
    ("variables", "path"),
    [({"agent_state_path": "/srv/state"}, "/srv/state"), ({}, "/var/lib/backendai")],
    ids=["an agent", "a gateway"],
)
def test_the_folder_of_the_hosts_state_is_sent(
    run: Run, monkeypatch: pytest.MonkeyPatch, variables: dict[str, Any], path: str
) -> None:
    sent: list[tuple[str, dict[str, Any]]] = []

    def call(_action: HostAction, phase: str, options: dict[str, Any], *_else: object) -> dict[str, Any]:
        sent.append((phase, options))
        return dict(REPLY)

    monkeypatch.setattr(HostAction, "call", call)
    result = run(firewall_traffic.ActionModule, {}, {"inventory_hostname": "agent1", **variables})
    assert (result["changed"], result["traffic"]) == (False, [SSH])
    assert [(phase, options["state_path"]) for phase, options in sent] == [("firewall_traffic", path)]


HOSTVARS = {
    "agent1": {"__firewall_traffic": REPLY},
    "agent2": {"__firewall_traffic": {"unreachable": True, "msg": "No route to host"}},
    "gateway1": {},
}


def test_hosts_are_reported_once_with_the_reason_why_one_is_unknown(
    run: Run, printed: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    hosts = ["agent1", "agent2", "agent1", "gateway1"]
    result = run(firewall_report.ActionModule, {"hosts": hosts, "path": str(path)}, {"hostvars": HOSTVARS})
    assert result["changed"] is False
    assert json.loads(path.read_text()) == result["report"]
    assert [(host["name"], host["mode"], host["error"]) for host in result["report"]["hosts"]] == [
        ("agent1", "report", None),
        ("agent2", None, "No route to host"),
        ("gateway1", None, "hidden by --limit"),
    ]
    assert printed[1] == "agent1  192.0.2.9  22    tcp       sshd     3"
    assert printed[-2:] == ["agent2: unknown: No route to host.", "gateway1: unknown: hidden by --limit."]


def test_without_a_path_nothing_is_written(run: Run, printed: list[str], tmp_path: Path) -> None:
    before = {*tmp_path.iterdir()}
    run(firewall_report.ActionModule, {"hosts": ["agent1"]}, {"hostvars": HOSTVARS})
    assert printed
    assert {*tmp_path.iterdir()} == before


def test_a_path_that_cannot_be_written_is_one_sentence(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "report.json"
    with pytest.raises(Exception, match="cannot be written: No such file or directory"):
        run(firewall_report.ActionModule, {"hosts": ["agent1"], "path": str(path)}, {"hostvars": HOSTVARS})
