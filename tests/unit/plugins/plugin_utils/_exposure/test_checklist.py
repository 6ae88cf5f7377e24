"""The checklist of Backend.AI's security guide: each line is met, is not, or was not checked."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._exposure.model import (
    InsideProbe,
    InsideReply,
    ProbedHost,
    Separation,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.checklist import build_checklist
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.inside import InsideResults
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.policy_folders import FolderResults

SEPARATE = Separation(declared=True, problems=(), enforced=True)
AGENT = ProbedHost(
    "agent1",
    "agent",
    {"10.2.0.1": "agent", "172.18.0.1": "bridge", "172.18.0.2": "container"},
    firewall_mode="enforce",
    separation=SEPARATE,
)
GATEWAY = ProbedHost("gateway1", "gateway", {"192.0.2.9": "gateway"}, firewall_mode="enforce")
QUIET = InsideResults(replies={"agent1": InsideReply((InsideProbe("train", "main1", ()),), 0)})

CHECKED = FolderResults(nothing="")

NO_AGENT, NO_CONTAINER = "users reach no agent", "users reach no container"
OFFERED = "users reach only the offered ports of gateways"
FIREWALLS = "every firewall drops what is not allowed"
PRIVATE = "agents have no public address"
NETWORKS = "management and compute are networks of their own"
RULES = "SSH is closed on compute, tunnels are closed on management"
INSIDE = "containers reach no management address"
FOLDERS, PROTECTED = (
    "folders of the policy are where root has put them",
    "shared folders of the policy are mounted nosuid,nodev",
)
NOT_PROBED = ("users' connections are encrypted and limited in rate", "managers are reached from trusted networks only")


def found(target: str, address: str, probe_host: str = "user1") -> dict[str, Any]:
    return {"probe_host": probe_host, "target": target, "address": address}


def unclear(target: str, reason: str) -> dict[str, Any]:
    return {"probe_host": None, "target": target, "address": None, "reason": reason}


def judged(
    *targets: ProbedHost,
    outside: tuple[dict[str, Any], ...] = (),
    within: tuple[dict[str, Any], ...] = (),
    inconclusive: tuple[dict[str, Any], ...] = (),
    inside: InsideResults = QUIET,
    folders: FolderResults = CHECKED,
) -> dict[str, tuple[bool | None, str | None]]:
    """Return the verdict of each requirement."""
    lines = build_checklist(targets or (AGENT, GATEWAY), outside, within, inconclusive, inside, folders)
    assert all(line.keys() == {"requirement", "ok", "reason"} for line in lines)
    # Whatever is not met, or was not checked, has a reason.
    assert all((line["reason"] is None) == (line["ok"] is True) for line in lines)
    return {line["requirement"]: (line["ok"], line["reason"]) for line in lines}


def agent(name: str = "agent1", **changes: Any) -> ProbedHost:
    return dataclasses.replace(AGENT, name=name, **changes)


def test_a_cluster_as_the_guide_asks_meets_all_that_is_probed() -> None:
    verdicts = judged()
    met = (NO_AGENT, NO_CONTAINER, OFFERED, FIREWALLS, PRIVATE, NETWORKS, RULES, INSIDE, FOLDERS, PROTECTED)
    assert [requirement for requirement, (ok, _reason) in verdicts.items() if ok] == list(met)
    assert [requirement for requirement, (ok, _reason) in verdicts.items() if ok is None] == list(NOT_PROBED)


@pytest.mark.parametrize(
    ("finding", "requirement"),
    [
        (found("agent1", "10.2.0.1"), NO_AGENT),
        (found("agent1", "172.18.0.1"), NO_AGENT),
        (found("agent1", "172.18.0.2"), NO_CONTAINER),
        (found("gateway1", "192.0.2.9"), OFFERED),
    ],
)
def test_an_answer_to_a_user_misses_the_line_of_what_answers(finding: dict[str, Any], requirement: str) -> None:
    verdicts = judged(outside=(finding, finding))
    assert verdicts[requirement] == (False, f"{finding['target']} answers user1 at {finding['address']}")
    assert [name for name, (ok, _reason) in verdicts.items() if ok is False] == [requirement]


def test_only_the_first_reasons_are_listed() -> None:
    many = tuple(found("gateway1", f"192.0.2.{number}") for number in range(9))
    assert str(judged(outside=many)[OFFERED][1]).endswith("; gateway1 answers user1 at 192.0.2.2; 6 more")


def test_what_was_inconclusive_was_not_checked() -> None:
    away = agent("agent2", addresses={}, unread="it is away", firewall_mode="", separation=None)
    verdicts = judged(AGENT, away, GATEWAY, inconclusive=(unclear("agent2", "it is away"),))
    assert verdicts[NO_AGENT] == verdicts[NO_CONTAINER] == (None, "agent2: it is away")
    assert verdicts[OFFERED] == (True, None)
    assert verdicts[FIREWALLS] == (None, "the firewall of agent2 is not known")
    assert (
        verdicts[PRIVATE]
        == verdicts[NETWORKS]
        == verdicts[RULES]
        == (
            None,
            "the addresses of agent2 could not be read",
        )
    )


def test_an_answer_counts_more_than_a_doubt() -> None:
    verdicts = judged(outside=(found("agent1", "10.2.0.1"),), inconclusive=(unclear("agent1", "it is away"),))
    assert verdicts[NO_AGENT] == (False, "agent1 answers user1 at 10.2.0.1")


def test_where_there_is_nothing_nothing_was_checked() -> None:
    verdicts = judged(
        agent(addresses={"10.2.0.1": "agent"}), inside=InsideResults(replies={"agent1": InsideReply((), 0)})
    )
    assert verdicts[NO_CONTAINER] == (None, "no container runs")
    assert verdicts[OFFERED] == (None, "there are no gateways")
    assert verdicts[INSIDE] == (None, "no session runs")


@pytest.mark.parametrize(
    ("mode", "verdict"),
    [
        ("enforce", (True, None)),
        ("report", (False, "the firewall of agent1 is in report mode and drops nothing")),
        ("off", (None, "agent1 has no firewall of this collection")),
        ("", (None, "the firewall of agent1 is not known")),
    ],
)
def test_a_firewall_is_judged_by_its_mode(mode: str, verdict: tuple[bool | None, str | None]) -> None:
    assert judged(agent(firewall_mode=mode))[FIREWALLS] == verdict


def test_a_public_address_of_an_agent_is_named_and_that_of_a_gateway_is_not() -> None:
    public = agent(addresses={"192.88.99.7": "agent", "172.18.0.1": "bridge"})
    ok, reason = judged(public)[PRIVATE]
    assert (ok, str(reason).startswith("agent1: it has the public address 192.88.99.7, ")) == (False, True)
    assert judged(AGENT, dataclasses.replace(GATEWAY, addresses={"192.88.99.7": "gateway"}))[PRIVATE] == (True, None)


def test_networks_that_are_not_apart_are_named_by_agent() -> None:
    mixed = agent(
        "agent2", separation=Separation(declared=True, problems=("eth0 has both", "SSH is there"), enforced=False)
    )
    verdicts = judged(AGENT, mixed)
    assert verdicts[NETWORKS] == (False, "agent2: eth0 has both; agent2: SSH is there")
    assert verdicts[RULES] == (
        False,
        "the firewall of agent2 does not see to it: provision with firewall_mode: enforce",
    )


def test_networks_that_are_not_declared_are_not_checked() -> None:
    other = agent("agent2", separation=Separation(declared=False, problems=(), enforced=False))
    verdicts = judged(AGENT, other)
    reason = "agent_management_networks and agent_compute_networks are not declared for agent2"
    assert verdicts[NETWORKS] == verdicts[RULES] == (None, reason)


def test_what_a_container_reaches_is_named() -> None:
    within = (found("manager1", "192.0.2.2", "main1 of train on agent1"),)
    assert judged(within=within)[INSIDE] == (False, "main1 of train on agent1 reaches manager1 at 192.0.2.2")


def test_what_could_not_be_probed_from_inside_is_said() -> None:
    partly = dataclasses.replace(QUIET, unprobed=("no address of manager1 is known",), failed={"agent2": "it is away"})
    assert judged(inside=partly)[INSIDE] == (None, "no address of manager1 is known; agent2: it is away")


def test_what_is_wrong_with_a_folder_of_the_policy_is_named() -> None:
    verdicts = judged(folders=FolderResults(("agent1: /a is a link",), ("manager1: /a is not nosuid",), nothing=""))
    assert (verdicts[FOLDERS], verdicts[PROTECTED]) == (
        (False, "agent1: /a is a link"),
        (False, "manager1: /a is not nosuid"),
    )


def test_folders_that_were_not_checked_are_no_proof() -> None:
    assert judged(folders=FolderResults())[FOLDERS] == (None, "there are no managers")
    assert judged(folders=FolderResults(unread=("agent1 is away",), nothing=""))[PROTECTED] == (None, "agent1 is away")
