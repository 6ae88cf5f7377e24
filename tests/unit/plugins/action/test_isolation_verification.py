"""The action isolation_verification: validation, planning of batches, and the report."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action import isolation_verification
from ansible_collections.backendai.cluster.plugins.module_utils._exposure.model import ProbedHost
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.report import split_into_batches
from tests.unit.plugins.action.conftest import Run

OPTIONS: dict[str, Any] = {
    "state": "validated",
    "pattern": "users",
    "probe_hosts": ["user1"],
    "agents": ["agent1"],
    "gateways": ["gateway1"],
    "managers": [],
}


def test_valid_options_are_returned(run: Run, tmp_path: Path) -> None:
    arguments = {**OPTIONS, "ports": "22", "rate": "500", "path": str(tmp_path / "report.json")}
    result = run(isolation_verification.ActionModule, arguments, {})
    assert (result["changed"], result["ports"], result["rate"]) == (False, "22", 500)
    assert (result["probe_hosts"], result["agents"], result["gateways"]) == (["user1"], ["agent1"], ["gateway1"])
    assert (result["to_read"], result["managers"]) == (["agent1", "gateway1"], [])
    assert list(tmp_path.iterdir()) == []


def test_options_have_defaults(run: Run) -> None:
    result = run(isolation_verification.ActionModule, OPTIONS, {})
    assert (result["ports"], result["rate"]) == ("1-65535", 16000)


def test_host_in_both_groups_is_read_once(run: Run) -> None:
    assert run(isolation_verification.ActionModule, {**OPTIONS, "gateways": ["agent1"]}, {})["to_read"] == ["agent1"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"probe_hosts": []},
            "firewall_probe_hosts: 'users' matches no host of the inventory; set it to untrusted hosts to probe from.",
        ),
        ({"agents": []}, "the inventory has no agents to probe."),
        (
            {"managers": ["user1"]},
            "firewall_probe_hosts: 'users' must not include managers, which are trusted: user1.",
        ),
        (
            {"gateways": ["user1", "gateway1"]},
            "firewall_probe_hosts: 'users' must not include gateways, which are trusted: user1.",
        ),
        ({"ports": "ssh"}, "firewall_probe_ports: 'ssh' must be port numbers and ranges such as 22,80,8000-9000."),
        ({"rate": "many"}, "firewall_probe_rate: 'many' must be a whole number, at least 1."),
        ({"rate": 0}, "firewall_probe_rate: 0 must be a whole number, at least 1."),
        (
            {"path": "/nowhere/report.json"},
            "firewall_report_path: '/nowhere/report.json' must be in an existing folder.",
        ),
    ],
)
def test_invalid_options_are_rejected(run: Run, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AnsibleActionFail) as refused:
        run(isolation_verification.ActionModule, {**OPTIONS, **changes}, {})
    assert str(refused.value) == sentence


SAID = {"addresses": {"192.0.2.1": "agent"}, "udp_ports": [51820], "expected": {}, "unread": ""}
DOORS = {"addresses": {"192.0.2.9": "gateway"}, "udp_ports": [], "expected": {"443": "HTTPS"}, "unread": ""}
PLAN = {"state": "planned", "agents": ["agent1"], "gateways": ["gateway1"], "managers": [], "ports": "22"}


def hostvars(**results: dict[str, Any]) -> dict[str, Any]:
    variables = {"agent1": {"__isolation_targets": SAID}, "gateway1": {"__isolation_targets": DOORS}}
    return {"hostvars": {**variables, **results}}


def test_reported_addresses_are_probed(run: Run) -> None:
    result = run(isolation_verification.ActionModule, PLAN, hostvars())
    assert [(entry["name"], entry["kind"], entry["expected"]) for entry in result["targets"]] == [
        ("agent1", "agent", {}),
        ("gateway1", "gateway", {"443": "HTTPS"}),
    ]
    assert [(entry["target"], entry["addresses"], entry["ports"]) for entry in result["batches"]] == [
        ("agent1", ["192.0.2.1"], "22"),
        ("gateway1", ["192.0.2.9"], "22"),
    ]
    assert (result["changed"], result["warnings"]) == (False, [])


def test_agent_without_docker_is_probed_with_a_warning(run: Run) -> None:
    results = {"__isolation_targets": {**SAID, "unread": "its containers are not known: no engine"}}
    result = run(isolation_verification.ActionModule, PLAN, hostvars(agent1=results))
    assert result["warnings"] == ["agent1: its containers are not known: no engine."]
    assert result["targets"][0]["unread"] == "its containers are not known: no engine"


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        ({"__isolation_targets": {"unreachable": True, "msg": "Failed to\nconnect."}}, "Failed to connect"),
        ({"__isolation_targets": {"failed": True}}, "it returned no result"),
        ({"__isolation_targets": {"addresses": {}}}, "its reply is damaged: udp_ports is missing"),
        (
            {"__isolation_targets": {**SAID, "expected": {"https": "HTTPS"}}},
            "its reply is damaged: expected must have whole numbers as keys",
        ),
        ({}, "hidden by --limit"),
    ],
)
def test_unreachable_host_is_probed_at_its_inventory_addresses(run: Run, results: dict[str, Any], reason: str) -> None:
    variables = {"ansible_host": "agent1.example", "agent_underlay_address": "192.0.2.7"}
    result = run(isolation_verification.ActionModule, PLAN, hostvars(agent1={**variables, **results}))
    assert result["targets"][0]["addresses"] == {"192.0.2.7": "agent"}
    assert result["warnings"] == [f"agent1: its addresses could not be read: {reason}."]


TARGET = ProbedHost("agent1", "agent", {"192.0.2.1": "agent"})
(BATCH,) = split_into_batches([TARGET], ((22, 23),), 16000)
QUIET = {"answers": [], "next_hops": {"192.0.2.1": ""}, "missing": {}, "unresolved": [], "on_link": True}
OPEN = {**QUIET, "answers": [{"address": "192.0.2.1", "protocol": "tcp", "state": "open", "ports": "22"}]}


NOTHING_INSIDE: dict[str, Any] = {"probes": [], "skipped": 0}


def reported(
    run: Run,
    probed: dict[str, Any],
    path: str = "",
    *,
    inside: dict[str, Any] | None = None,
    check_mode: bool = False,
) -> dict[str, Any]:
    args = {
        "state": "reported",
        "probe_hosts": ["user1"],
        "targets": [dataclasses.asdict(TARGET)],
        "batches": [dataclasses.asdict(BATCH)],
        "inside": {"targets": [{"host": "manager1", "address": "192.0.2.2", "port": 22}], "unprobed": []},
        "agents": ["agent1"],
        "managers": [],
        "folders": {"folders": [], "users": [], "unread": [], "changed": False},
        "path": path,
    }
    variables = {"hostvars": {"user1": probed, "agent1": {"__isolation_inside": inside or NOTHING_INSIDE}}}
    return run(isolation_verification.ActionModule, args, variables, check_mode=check_mode)


def results(**entry: Any) -> dict[str, Any]:
    return {"__isolation_probe": {"results": [{"batch": dataclasses.asdict(BATCH), **entry}]}}


def test_report_without_findings_is_written(run: Run, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    result = reported(run, results(**QUIET), str(path))
    assert (result["changed"], result["report"]["ok"]) == (False, True)
    assert json.loads(path.read_text()) == result["report"]
    assert printed[-1] == "Only the gateway answers user1, at 1 addresses."


def test_open_port_is_reported_and_fails(run: Run, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    with pytest.raises(AnsibleActionFail) as refused:
        reported(run, results(**OPEN), str(path))
    assert str(refused.value) == ("isolation check failed: probe hosts get an answer from 1 address of agent1.")
    (finding,) = json.loads(path.read_text())["findings"]
    assert (finding["probe_host"], finding["target"], finding["port"]) == ("user1", "agent1", 22)
    assert "user1 -> agent1 (192.0.2.1) tcp 22 open: it accepts connections." in printed


@pytest.mark.parametrize(
    ("probed", "reason"),
    [
        (results(failed=True, msg="ip -batch:\n File exists."), "the probe failed: ip -batch: File exists"),
        (results(failed=True), "the probe failed: it returned no result"),
        ({"__isolation_probe": {"unreachable": True, "msg": "no route."}}, "the probe failed: no route"),
        (results(next_hops={}), "the probe failed: its reply is damaged: answers is missing"),
        (
            results(**{**QUIET, "on_link": "yes"}),
            "the probe failed: its reply is damaged: on_link must be true or false",
        ),
        ({}, "the probe failed: hidden by --limit"),
    ],
)
def test_failed_probe_is_reported_and_fails(run: Run, printed: list[str], probed: dict[str, Any], reason: str) -> None:
    with pytest.raises(AnsibleActionFail) as refused:
        reported(run, probed)
    assert str(refused.value) == "isolation check failed: 1 check was inconclusive."
    assert printed[0] == f"inconclusive: user1 -> agent1: {reason}."
    assert {line[0] for line in printed[1:]} <= {*"✓?"}


def test_check_mode_shows_the_planned_probes(run: Run, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    result = reported(run, results(**OPEN), str(path), check_mode=True)
    assert (result["changed"], "report" in result, path.exists()) == (False, False, False)
    assert printed == ["agent1: 192.0.2.1: TCP ports 22-23 would be probed."]


def test_ssh_of_every_host_is_planned_to_be_probed_from_containers(run: Run) -> None:
    managers = {"manager1": {"ansible_host": "192.0.2.2", "ansible_port": "2222"}}
    result = run(isolation_verification.ActionModule, {**PLAN, "managers": ["manager1"]}, hostvars(**managers))
    assert result["inside"] == {
        "targets": [
            {"host": "agent1", "address": "192.0.2.1", "port": 22},
            {"host": "gateway1", "address": "192.0.2.9", "port": 22},
            {"host": "manager1", "address": "192.0.2.2", "port": 2222},
        ],
        "unprobed": [],
    }


def test_a_container_that_reaches_a_manager_is_reported_and_fails(run: Run, printed: list[str], tmp_path: Path) -> None:
    answers = [{"address": "192.0.2.2", "port": 22, "state": "open"}]
    inside = {"probes": [{"session": "train", "container": "main1", "answers": answers, "failed": ""}], "skipped": 0}
    path = tmp_path / "report.json"
    with pytest.raises(AnsibleActionFail) as refused:
        reported(run, results(**QUIET), str(path), inside=inside)
    assert str(refused.value) == "isolation check failed: containers get an answer from 1 address of manager1."
    assert "main1 of train on agent1 -> manager1 (192.0.2.2) tcp 22 open: it accepts connections." in printed
    reason = "main1 of train on agent1 reaches manager1 at 192.0.2.2"
    assert f"✗ containers reach no management address: {reason}." in printed
    line = {"requirement": "containers reach no management address", "ok": False, "reason": reason}
    assert line in json.loads(path.read_text())["checklist"]


def test_provisioning_warns_of_each_folder_that_users_could_not_mount(run: Run) -> None:
    data = {"source": "/srv/data", "read_only": True}
    hosts = {
        "manager1": {
            "__policy_folders_of": {"rc": 0, "stdout": json.dumps([data])},
            "__policy_folders": {"problems": [], "unprotected": ["/srv is mounted without nosuid"]},
        },
        "agent1": {
            "__policy_users": {"users": ["alice"]},
            "__policy_folders": {"problems": ["/srv/data is\x1b a link"], "unprotected": []},
        },
    }
    args = {"agents": ["agent1"], "managers": ["manager1"]}
    plan = run(isolation_verification.ActionModule, {**args, "state": "folders_planned"}, {"hostvars": hosts})
    assert (plan["folders"], plan["users"]) == ([data], ["alice"])
    reported = {**args, "state": "folders_reported", "folders": plan}
    result = run(isolation_verification.ActionModule, reported, {"hostvars": hosts})
    assert result["warnings"] == ["agent1: /srv/data is\\x1b a link.", "manager1: /srv is mounted without nosuid."]
