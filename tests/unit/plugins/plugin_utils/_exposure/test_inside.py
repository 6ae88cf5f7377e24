"""Probes from inside of containers: what is planned, and what agents report."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._exposure.model import (
    InsideAnswer,
    InsideProbe,
    InsideReply,
    InsideTarget,
    ProbedHost,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure import inside
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.inside import (
    InsidePlan,
    InsideResults,
    collect_inside_results,
    plan_inside_probes,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import Answer, Failure

AGENT = ProbedHost(
    "agent1", "agent", {"192.0.2.1": "agent", "fd00::1": "agent", "172.18.0.1": "bridge", "172.18.0.2": "container"}
)
GATEWAY = ProbedHost("gateway1", "gateway", {"192.0.2.9": "gateway"})
HOSTS: dict[str, dict[str, Any]] = {
    "agent1": {"ansible_port": 2222},
    "gateway1": {},
    "manager1": {"ansible_host": "192.0.2.2"},
    "local": {"ansible_host": "127.0.0.1"},
    "odd": {"ansible_host": "no.such.name.invalid"},
}
ANSWER = {"address": "192.0.2.2", "port": 22, "state": "open"}
PROBE = {"session": "train", "container": "main1", "answers": [ANSWER], "failed": ""}


def planned(*managers: str) -> InsidePlan:
    return plan_inside_probes([AGENT, GATEWAY], managers, HOSTS)


def collected(answer: Answer | None) -> InsideResults:
    """Return the results of agent1, given its answer."""
    return collect_inside_results(planned("manager1"), [AGENT, GATEWAY], {"agent1": answer} if answer else {})


def test_the_ssh_port_of_every_host_is_a_target_at_each_ipv4_address_of_its_own() -> None:
    assert planned("manager1") == InsidePlan(
        (
            InsideTarget("agent1", "192.0.2.1", 2222),
            InsideTarget("gateway1", "192.0.2.9", 22),
            InsideTarget("manager1", "192.0.2.2", 22),
        )
    )


def test_a_manager_without_a_usable_address_is_said() -> None:
    plan = planned("local", "odd")
    assert [target.host for target in plan.targets] == ["agent1", "gateway1"]
    no_address, unresolved = plan.unprobed
    assert no_address == "no address of local is known"
    assert unresolved.startswith("odd: 'no.such.name.invalid' has no address: ")


def test_a_manager_that_is_a_gateway_is_one_target() -> None:
    hosts = {**HOSTS, "gateway1": {"ansible_host": "192.0.2.9"}}
    assert [target.host for target in plan_inside_probes([GATEWAY], ["gateway1"], hosts).targets] == ["gateway1"]


def test_targets_beyond_the_limit_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "MAX_TARGETS", 2)
    plan = planned("manager1")
    assert [target.host for target in plan.targets] == ["agent1", "gateway1"]
    assert plan.unprobed == ("1 addresses beyond the first 2",)


def test_the_reply_of_each_agent_is_collected() -> None:
    results = collected({"probes": [PROBE], "skipped": 0, "changed": False})
    probe = InsideProbe("train", "main1", (InsideAnswer("192.0.2.2", 22, "open"),))
    assert (results.replies, results.failed, results.gaps) == ({"agent1": InsideReply((probe,), 0)}, {}, [])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "hidden by --limit"),
        (Failure("no\nroute.", unreachable=True), "no route"),
        ({"probes": []}, "its reply is damaged: skipped is missing"),
        (
            {"probes": [{**PROBE, "answers": [{**ANSWER, "address": "192.0.2.200"}]}], "skipped": 0},
            "its reply is damaged: it is about another address, port or state than asked for",
        ),
        (
            {"probes": [{**PROBE, "answers": [{**ANSWER, "state": "fine"}]}], "skipped": 0},
            "its reply is damaged: it is about another address, port or state than asked for",
        ),
    ],
)
def test_an_agent_without_a_usable_reply_has_a_reason(answer: Answer | None, reason: str) -> None:
    results = collected(answer)
    assert (results.replies, results.failed, results.gaps) == ({}, {"agent1": reason}, [f"agent1: {reason}"])


def test_containers_and_sessions_that_were_not_probed_from_are_gaps() -> None:
    failed = {**PROBE, "answers": [], "failed": "its network cannot be entered"}
    assert collected({"probes": [failed], "skipped": 3}).gaps == [
        "main1 of train: its network cannot be entered",
        "agent1 has 3 more sessions than are probed from",
    ]
