"""The actions isolation_verify and policy_folders: what they refuse, ask, show, write and return."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action import isolation_verify, policy_folders
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import Answer, Failure, Tell
from tests.unit.plugins.action.asked_hosts import GONE, Asked, AskedHosts
from tests.unit.plugins.action.conftest import Run

AGENT1 = {
    "addresses": {"192.0.2.1": "agent"},
    "udp_ports": [51820],
    "expected": {},
    "unread": "",
    "firewall_mode": "enforce",
}
GATEWAY1 = {**AGENT1, "addresses": {"192.0.2.9": "gateway"}, "udp_ports": [], "expected": {"443": "HTTPS"}}
QUIET = {"missing": {}, "unresolved": [], "on_link": True}
NOTHING_INSIDE: dict[str, Any] = {"probes": [], "skipped": 0}
NO_FOLDERS: dict[str, Any] = {"users": [], "problems": [], "unprotected": []}


def probe(request: Asked, *opened: str) -> Answer:
    """Return the answer to a probe, of addresses some of which have an open port."""
    addresses = request.options["addresses"]
    answers = [
        {"address": address, "protocol": "tcp", "state": "open", "ports": "22"}
        for address in addresses
        if address in opened
    ]
    return {**QUIET, "answers": answers, "next_hops": dict.fromkeys(addresses, "")}


class Site:
    """An agent, a gateway, a manager and a host outside; ``answers`` are by phase and host."""

    def __init__(self) -> None:
        self.groups = {
            "agents": ["agent1"],
            "gateways": ["gateway1"],
            "managers": ["manager1"],
            "users": ["user1"],
            "nobody": [],
        }
        self.hosts: dict[str, dict[str, Any]] = {name: {} for names in self.groups.values() for name in names}
        self.hosts["manager1"] = {"ansible_host": "192.0.2.2"}
        self.answers: dict[tuple[str, str], Answer] = {
            ("targets", "agent1"): AGENT1,
            ("targets", "gateway1"): GATEWAY1,
            ("inside", "agent1"): NOTHING_INSIDE,
            ("policy", "manager1"): {"folders": []},
        }
        self.hidden: list[str] = []
        self.open = ""
        self.asked: list[Asked] = []
        self.looks: list[bool] = []

    def answer(self, request: Asked) -> Answer:
        self.asked.append(request)
        known = self.answers.get((request.phase, request.host))
        if known is not None:
            return known
        return probe(request, self.open) if request.phase == "probe" else NO_FOLDERS


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    there = Site()

    @contextlib.contextmanager
    def calls_of(
        _action: object,
        kinds: Sequence[Any],
        _variables: Mapping[str, Any],
        tell: Tell | None = None,
        *,
        look: bool = False,
    ) -> Iterator[list[AskedHosts]]:
        there.looks.append(look)
        asked = AskedHosts(there.hosts, there.answer, tell) if tell else AskedHosts(there.hosts, there.answer)
        yield [asked for _kind in kinds]

    for action in (isolation_verify.ActionModule, policy_folders.ActionModule):
        monkeypatch.setattr(action, "calls_of", calls_of)
        monkeypatch.setattr(action, "matched", lambda _action, pattern, _variables: there.groups[pattern])
        monkeypatch.setattr(
            action,
            "within_limit",
            lambda _action, names, _variables: [name for name in names if name not in there.hidden],
        )
    return there


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    warnings: list[str] = []
    monkeypatch.setattr("ansible.plugins.action.display.warning", warnings.append)
    return warnings


def verified(
    run: Run, site: Site, args: dict[str, Any] | None = None, variables: dict[str, Any] | None = None, **how: bool
) -> dict[str, Any]:
    given = {"ports": "22-23", **(args or {})}
    return run(isolation_verify.ActionModule, given, {"hostvars": site.hosts, **(variables or {})}, **how)


# ---- what is refused


@pytest.mark.parametrize(
    ("args", "groups", "sentence"),
    [
        (
            {"probe_hosts": "nobody"},
            {},
            "probe_hosts: 'nobody' matches no host of the inventory; set it to untrusted hosts to probe from.",
        ),
        ({}, {"agents": []}, "the inventory has no agents to probe."),
        (
            {"probe_hosts": "users"},
            {"managers": ["user1"]},
            "probe_hosts: 'users' must not include managers, which are trusted: user1.",
        ),
        (
            {},
            {"gateways": ["user1", "gateway1"]},
            "firewall_probe_hosts: 'users' must not include gateways, which are trusted: user1.",
        ),
        ({"ports": "ssh"}, {}, "ports: 'ssh' must be port numbers and ranges such as 22,80,8000-9000."),
        ({"rate": 0}, {}, "rate: 0 must be a whole number, at least 1."),
        ({"path": "/nowhere/report.json"}, {}, "path: '/nowhere/report.json' must be in an existing folder."),
        ({"format": "wide"}, {}, "value of format must be one of: table, got: wide."),
    ],
)
def test_options_that_are_not_valid_are_refused_before_any_host_is_asked(
    run: Run, site: Site, args: dict[str, Any], groups: dict[str, list[str]], sentence: str
) -> None:
    site.groups |= groups
    with pytest.raises(AnsibleActionFail) as refused:
        verified(run, site, args)
    assert (str(refused.value), site.asked) == (sentence, [])


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"firewall_probe_rate": "many"}, "firewall_probe_rate: 'many' must be a whole number, at least 1."),
        (
            {"firewall_report_path": "/nowhere/report.json"},
            "firewall_report_path: '/nowhere/report.json' must be in an existing folder.",
        ),
        ({"ansible_play_hosts_all": ["agent1", "user1"]}, "this task asks all agents by itself"),
    ],
)
def test_variables_that_are_not_valid_are_refused_by_their_names(
    run: Run, site: Site, variables: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(AnsibleActionFail) as refused:
        verified(run, site, {}, variables)
    assert str(refused.value).startswith(sentence)
    assert site.asked == []


# ---- the report


def test_a_report_without_findings_is_returned_and_written(
    run: Run, site: Site, printed: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    result = verified(run, site, {"path": str(path)})
    assert (result["changed"], result["report"]["ok"], "failed" in result) == (False, True, False)
    assert json.loads(path.read_text()) == result["report"]
    assert [line for line in printed if "(" not in line and ": begun" not in line] == []
    asked = {request.host: request.options for request in site.asked if request.phase == "probe"}
    assert (asked["user1"]["ports"], asked["user1"]["rate"]) == ("22-23", 16000)
    # Folders are only looked at: the program does not stay on managers.
    assert site.looks == [False, True]


def test_a_report_is_shown_as_a_table_and_not_returned(run: Run, site: Site, printed: list[str]) -> None:
    result = verified(run, site, {"format": "table"})
    assert "report" not in result
    assert printed[-1] == "Only the gateway answers user1, at 2 addresses."


def test_what_the_task_does_not_say_is_in_variables(run: Run, site: Site, tmp_path: Path) -> None:
    site.groups["strangers"], site.hosts["user2"] = ["user2"], {}
    path = tmp_path / "report.json"
    variables = {
        "firewall_probe_hosts": "strangers",
        "firewall_probe_ports": "80",
        "firewall_probe_rate": "500",
        "firewall_report_path": str(path),
    }
    result = run(isolation_verify.ActionModule, {}, {"hostvars": site.hosts, **variables})
    probes = [request for request in site.asked if request.phase == "probe"]
    assert {(probe.host, probe.options["ports"], probe.options["rate"]) for probe in probes} == {("user2", "80", 500)}
    assert json.loads(path.read_text()) == result["report"]


def test_an_open_port_is_a_failure(run: Run, site: Site, printed: list[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    site.open = "192.0.2.1"
    result = verified(run, site, {"path": str(path), "format": "table"})
    assert result["failed"]
    assert result["msg"] == "isolation check failed: probe hosts get an answer from 1 address of agent1."
    assert json.loads(path.read_text())["findings"][0]["port"] == 22
    assert "user1 -> agent1 (192.0.2.1) tcp 22 open: it accepts connections." in printed


def test_a_host_that_cannot_be_read_or_probed_from_is_a_finding_with_a_warning(
    run: Run, site: Site, printed: list[str], warned: list[str]
) -> None:
    site.hosts["agent1"] = {"ansible_host": "192.0.2.1"}
    site.answers |= {("targets", "agent1"): GONE, ("probe", "user1"): Failure("ip -batch:\n File exists.")}
    result = verified(run, site, {"format": "table"})
    assert result["msg"] == "isolation check failed: 3 checks were inconclusive."
    assert warned == ["agent1: its addresses could not be read: no route to host."]
    assert "inconclusive: user1 -> gateway1: the probe failed: ip -batch: File exists." in printed


@pytest.mark.usefixtures("warned")
def test_hosts_that_a_limit_hides_are_inconclusive(run: Run, site: Site) -> None:
    site.hidden = ["agent1", "manager1"]
    site.hosts["agent1"] = {"ansible_host": "192.0.2.1"}
    report = verified(run, site)["report"]
    assert {entry["reason"] for entry in report["inconclusive"]} == {
        "its addresses could not be read: hidden by --limit",
    }
    assert {request.host for request in site.asked} == {"gateway1", "user1"}


def test_check_mode_shows_the_planned_probes_and_makes_none(
    run: Run, site: Site, printed: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    result = verified(run, site, {"path": str(path)}, check_mode=True)
    assert (result["changed"], "report" in result, path.exists()) == (False, False, False)
    assert {request.phase for request in site.asked} == {"targets"}
    assert printed[-2:] == [
        "agent1: 192.0.2.1: TCP ports 22-23 would be probed.",
        "gateway1: 192.0.2.9: TCP ports 22-23 would be probed.",
    ]


def test_a_container_that_reaches_a_manager_is_a_failure(run: Run, site: Site, printed: list[str]) -> None:
    answers = [{"address": "192.0.2.2", "port": 22, "state": "open"}]
    found = {"session": "train", "container": "main1", "answers": answers, "failed": ""}
    site.answers["inside", "agent1"] = {"probes": [found], "skipped": 0}
    result = verified(run, site, {"format": "table"})
    assert result["msg"] == "isolation check failed: containers get an answer from 1 address of manager1."
    assert "main1 of train on agent1 -> manager1 (192.0.2.2) tcp 22 open: it accepts connections." in printed
    (inside,) = [request for request in site.asked if request.phase == "inside"]
    assert [target["host"] for target in inside.options["targets"]] == ["agent1", "gateway1", "manager1"]


def test_a_folder_that_users_could_replace_is_a_failure(run: Run, site: Site) -> None:
    site.answers["policy", "manager1"] = {"folders": [{"source": "/srv/data", "read_only": True}]}
    site.answers["policy_folders", "agent1"] = {**NO_FOLDERS, "problems": ["/srv/data is a link"]}
    result = verified(run, site)
    requirement = "folders of the policy are where root has put them"
    (line,) = [line for line in result["report"]["checklist"] if line["requirement"] == requirement]
    assert (line["ok"], line["reason"]) == (False, "agent1: /srv/data is a link")
    assert requirement in result["msg"]


# ---- folders only


def test_each_folder_that_users_could_not_mount_is_a_warning(run: Run, site: Site) -> None:
    site.answers |= {
        ("policy", "manager1"): {"folders": [{"source": "/srv/data", "read_only": True}]},
        ("policy_folders", "agent1"): {**NO_FOLDERS, "problems": ["/srv/data is\x1b a link"]},
        ("policy_folders", "manager1"): {**NO_FOLDERS, "unprotected": ["/srv is mounted without nosuid"]},
    }
    result = run(policy_folders.ActionModule, {}, {"hostvars": site.hosts})
    assert result["warnings"] == ["agent1: /srv/data is\\x1b a link.", "manager1: /srv is mounted without nosuid."]
    assert (result["changed"], site.looks) == (False, [True])


def test_a_manager_that_is_given_back_is_not_asked_for_its_policy(run: Run, site: Site) -> None:
    site.hosts["manager1"] = {"manager_state": "absent"}
    assert run(policy_folders.ActionModule, {}, {"hostvars": site.hosts})["warnings"] == []
    assert {(request.phase, request.host) for request in site.asked} == {("policy_folders", "agent1")}
