"""A pass over a queue: what is decided, and what is known from the pass before."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import Device
from ansible_collections.backendai.cluster.plugins.module_utils._model.mounts import Unusable
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Unschedulable
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import (
    ClusterState,
    InventoryAgent,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import (
    Decision,
    decide,
    is_feasible,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue import answers as module
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.answers import Answers, LastPass
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import IRRELEVANT, QueueEntry
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.schedule import QueuePolicy, schedule
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import SessionSpec
from tests.unit.builders import (
    GIB,
    NOW,
    POOLS,
    SESSION_ID,
    agent_facts,
    bare_plan,
    bare_session,
    plan,
    readings,
    requested,
    spec,
)

POLICIES = ("fifo", "lifo", "drf")


class Counted:
    """The number of decisions and of judgements whether something could ever start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.decided, self.judged, self.named = 0, 0, 0

        def count_decision(*arguments: Any, name_blockers: bool) -> Decision | Unschedulable:
            self.decided += 1
            self.named += name_blockers
            return decide(*arguments, name_blockers=name_blockers)

        def count_judgement(*arguments: Any) -> bool:
            self.judged += 1
            return is_feasible(*arguments)

        monkeypatch.setattr(module, "decide", count_decision)
        monkeypatch.setattr(module, "is_feasible", count_judgement)

    def take(self) -> tuple[int, int]:
        """Return both numbers since the last call."""
        numbers = self.decided, self.judged
        self.decided = self.judged = 0
        return numbers


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def full(**changes: Any) -> ClusterState:
    """Return two full agents, and one of another resource group, with changes of the first one's facts."""
    taken = {"cpu": 8, "mem": 16 * GIB}
    holder = bare_plan("holder", NOW, {"agent1": [taken]})
    first: dict[str, Any] = {"allocated": taken, "sessions": [bare_session(holder)], **changes}
    return readings(
        recorded=[holder],
        agent1=agent_facts("agent1", **first),
        agent2=agent_facts("agent2", allocated=taken),
        agent3=agent_facts("agent3", allocated=taken, resource_group="gpu"),
    )


def waiting(number: int, cpu: int = 1, skipped: int = 0, **options: Any) -> QueueEntry:
    request = spec(**{"name": f"session-{number}", "resources": {"cpu": cpu, "mem": "64m"}, **options})
    return requested(number, request, skipped=skipped)


def run(
    entries: list[QueueEntry], cluster: ClusterState, last: LastPass | None = None, policy: str = "fifo"
) -> tuple[list[tuple[QueueEntry, Decision | Unschedulable]], LastPass]:
    """Return the outcome of a pass, and what it leaves to the next one."""
    answers = Answers(cluster, POOLS, NOW, last)
    found = schedule(entries, answers, QueuePolicy(policy, 4))
    return found, answers.result({e.id: (e, answer) for e, answer in found if isinstance(answer, Unschedulable)})


@pytest.mark.parametrize("policy", POLICIES)
def test_each_kind_of_request_is_decided_once_and_nothing_again_until_an_agent_changes(
    counted: Counted, policy: str
) -> None:
    entries = [waiting(number, 1 + number % 3, env={"TOKEN": f"{number}"}) for number in range(1, 61)]
    found, last = run(entries, full(), policy=policy)
    assert (len(found), counted.take()) == (60, (3, 0))
    again, unchanged = run(entries, full(), last, policy)
    assert counted.take() == (0, 0)
    assert [(e.id, answer.reason) for e, answer in again if isinstance(answer, Unschedulable)] == [
        (e.id, answer.reason) for e, answer in found if isinstance(answer, Unschedulable)
    ]
    assert unchanged == last


@pytest.mark.parametrize(
    "changes",
    [
        {"allocated": {"cpu": 7, "mem": 16 * GIB}},
        {"capacity": {"cpu": 8, "mem": 17 * GIB}},
        {"schedulable": False},
        {"architecture": "arm64"},
        {"max_containers": 9},
        {"containers": 3},
        {"sessions": []},
        {"unusable_paths": {"/data": Unusable("is missing")}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_decides_whether_there_is_room_is_looked_at_again(counted: Counted, changes: dict[str, Any]) -> None:
    entries = [waiting(1), waiting(2, 2)]
    last = run(entries, full())[1]
    counted.take()
    run(entries, full(**changes), last)
    assert counted.take() == (2, 0)


def test_what_makes_no_difference_to_the_room_is_no_reason_to_decide_again(counted: Counted) -> None:
    entries = [waiting(1), waiting(2, 2)]
    last = run(entries, full())[1]
    counted.take()
    changed = full(tcp_ports=[4000], warnings=["the disk is nearly full"])
    other = {**changed.facts, "agent3": agent_facts("agent3", resource_group="gpu", allocated={"cpu": 1})}
    run(entries, dataclasses.replace(changed, facts=other), last)
    assert counted.take() == (0, 0)


def test_a_request_that_changes_is_decided_again(counted: Counted) -> None:
    last = run([waiting(1), waiting(2)], full())[1]
    counted.take()
    run([waiting(1), waiting(2, 3)], full(), last)
    assert counted.take() == (1, 0)


def test_every_option_that_may_make_a_difference_to_the_room_does() -> None:
    options = {field.name for field in dataclasses.fields(SessionSpec)}
    assert options - IRRELEVANT == {
        "image", "cluster_mode", "cluster_size", "resources", "roles", "mounts", "resource_group", "architecture",
        "agent_selection", "designated_agents", "designated_agents_mode", "network_driver", "infiniband",
        "agent_labels", "gpu", "topology",
    }  # fmt: skip


def test_what_excludes_all_agents_is_found_once_until_a_fact_changes_that_could_end_it(counted: Counted) -> None:
    asked: list[dict[str, Any]] = [
        {"architecture": "arm64"},
        {"agent_labels": ["fast"]},
        {"infiniband": True},
        {"resources": {"cpu": 1, "mem": "64m", "tpu": 1}},
        {"mounts": [{"source": "/data", "target": "/data"}]},
        {"network_driver": "host", "cluster_mode": "multi-node", "cluster_size": 2},
    ]
    entries = [waiting(number, env={"TOKEN": f"{number}"}, **asked[number % 6]) for number in range(1, 31)]
    lacking = {"/data": Unusable("is missing")}
    cluster = full(unusable_paths=lacking)
    facts = {**cluster.facts, "agent2": dataclasses.replace(cluster.facts["agent2"], unusable_paths=lacking)}
    cluster = dataclasses.replace(cluster, facts=facts)
    found, last = run(entries, cluster)
    assert counted.take() == (6, 0)
    # What sessions hold makes no difference, unlike for "no room".
    emptied = {**facts, "agent1": dataclasses.replace(facts["agent1"], allocated={}, sessions=())}
    again, unchanged = run(entries, dataclasses.replace(cluster, facts=emptied), last)
    assert counted.take() == (0, 0)
    assert [answer for _entry, answer in again] == [answer for _entry, answer in found]
    assert unchanged == last
    assert len(last.lacks) == 6


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_group": "gpu"},
        {"architecture": "arm64"},
        {"labels": frozenset({"fast"})},
        {"capacity": {"cpu": 8, "mem": 16 * GIB, "tpu": 1}},
        {"devices": (Device("cuda.device", "0", model="H100"),)},
        {"allow_host_network": True},
        {"has_infiniband": True},
        {"infiniband": True},
        {"unusable_paths": {"/data": Unusable("is a file")}},
        {"name": "agent9"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_could_end_an_exclusion_is_looked_at_again(counted: Counted, changes: dict[str, Any]) -> None:
    entries = [waiting(1, agent_labels=["slow"])]
    last = run(entries, full())[1]
    counted.take()
    # The group of the request has another agent.
    facts = full().facts
    run(entries, readings(**{**facts, "agent2": dataclasses.replace(facts["agent2"], **changes)}), last)
    assert counted.take() == (1, 0)


def test_an_agent_that_cannot_be_used_is_looked_at_again(counted: Counted) -> None:
    entries = [waiting(1, designated_agents=["agent4"])]
    found, last = run(entries, dataclasses.replace(full(), unavailable={"agent4": "its engine is down"}))
    again, _last = run(entries, dataclasses.replace(full(), unavailable={"agent4": "it is unreachable"}), last)
    assert counted.take() == (2, 0)
    reasons = [answer.reason for _e, answer in (*found, *again) if isinstance(answer, Unschedulable)]
    assert reasons == [
        "session_designated_agents: 'agent4' cannot be used: its engine is down",
        "session_designated_agents: 'agent4' cannot be used: it is unreachable",
    ]


def test_an_agent_that_is_away_is_looked_at_again_when_it_or_its_inventory_changes(counted: Counted) -> None:
    entries = [waiting(1, agent_labels=["fast"]), waiting(2, resources={"cpu": 1, "mem": "64m", "tpu": 1})]
    state = dataclasses.replace(full(), unavailable={"agent4": "it is off"}, unreachable=["agent4"])
    known = {"agent4": InventoryAgent("default", frozenset({"fast"}))}
    found, last = run(entries, dataclasses.replace(state, inventory=known))
    assert counted.take() == (2, 0)
    reasons = [answer.reason for _entry, answer in found if isinstance(answer, Unschedulable)]
    assert [reason.endswith("; agent4 does not answer (it is off)") for reason in reasons] == [True, True]
    again, _last = run(entries, dataclasses.replace(state, inventory=known), last)
    assert counted.take() == (0, 0)
    assert [answer.reason for _entry, answer in again if isinstance(answer, Unschedulable)] == reasons
    run(entries, dataclasses.replace(state, inventory={"agent4": InventoryAgent("default", frozenset())}), last)
    assert counted.take() == (2, 0)
    run(entries, dataclasses.replace(state, inventory=known, unavailable={"agent4": "it hangs"}), last)
    assert counted.take() == (2, 0)


def test_what_was_decided_after_a_start_is_not_known_to_the_next_pass(counted: Counted) -> None:
    room = full(allocated={"cpu": 7, "mem": 15 * GIB}, sessions=[])
    found, last = run([waiting(1), waiting(2), waiting(3)], room)
    assert [isinstance(answer, Decision) for _entry, answer in found] == [True, False, False]
    assert counted.take() == (2, 0)
    # The start has failed: there is room as before.
    found, _last = run([waiting(2), waiting(3)], room, last)
    assert [isinstance(answer, Decision) for _entry, answer in found] == [True, False]


def test_a_session_is_not_refused_for_another_one_with_its_request() -> None:
    held = dataclasses.replace(plan({"agent1": 1}, name="session-1"), id=waiting(9).id)
    entries = [waiting(1), waiting(2)]
    found, _last = run(entries, full(allocated={}, sessions=[]).with_plan(held))
    reasons = [answer.reason if isinstance(answer, Unschedulable) else "" for _entry, answer in found]
    assert reasons[0].startswith("session_name: 'session-1' is the name of another session that lives")
    assert reasons[1] == ""


@pytest.mark.parametrize("apps", [["jupyter"], []], ids=["fewer apps", "no app"])
def test_a_session_is_not_refused_for_the_apps_of_another_one(apps: list[str]) -> None:
    pools = dataclasses.replace(POOLS, gateways=["gateway1"], first_published_port=30000, last_published_port=30001)
    entries = [waiting(1, apps=["jupyter", "terminal"]), waiting(2, apps=apps)]
    answers = Answers(full(allocated={}, sessions=[]), pools, NOW)
    refused, fits = [answers.decide(entry) for entry in entries]
    assert isinstance(refused, Unschedulable)
    assert refused.reason == "session_published_port_pool: 30000-30001 has fewer ports than the 3 that are needed"
    assert isinstance(fits, Decision)


def test_on_a_host_network_no_sshd_takes_the_port_of_an_app() -> None:
    pools = dataclasses.replace(POOLS, gateways=["gateway1"], first_host_port=30000, last_host_port=30003)
    agents = [agent_facts(name, 1, allow_host_network=True) for name in ("agent1", "agent2")]
    app = {"name": "page", "port": 30001, "command": "serve"}
    answers = Answers(readings(agent1=agents[0], agent2=agents[1]), pools, NOW)
    decided = [answers.decide(waiting(number, apps=[app], **ON_HOST)) for number in range(1, 13)]
    assert {type(answer) for answer in decided} == {Decision}


ON_HOST: dict[str, Any] = {"cluster_size": 2, "cluster_mode": "multi-node", "network_driver": "host"}


def test_a_refusal_for_want_of_ports_holds_until_they_are_free(counted: Counted) -> None:
    pools = dataclasses.replace(POOLS, gateways=["gateway1"], first_published_port=30000, last_published_port=30003)

    def refused(ports: list[int], last: LastPass) -> tuple[bool, LastPass]:
        cluster = readings(agent1=agent_facts("agent1", tcp_ports=ports, allow_host_network=True))
        answers = Answers(cluster, pools, NOW, last)
        answer = answers.decide(entry)
        waits = {entry.id: (entry, answer)} if isinstance(answer, Unschedulable) else {}
        return bool(waits), answers.result(waits)

    entry = waiting(1, apps=["jupyter", "terminal"])
    lack, last = refused([30000, 30001], LastPass())
    again, last = refused([30002, 30003, 22], last)
    assert (lack, again, counted.take()[0]) == (True, True, 1)
    assert not refused([30003], last)[0]


def test_on_a_host_network_a_refusal_holds_until_a_port_is_free(counted: Counted) -> None:
    app = {"name": "page", "port": 8000, "command": "serve"}
    pools = dataclasses.replace(POOLS, gateways=["gateway1"])
    entry = waiting(1, apps=[app], **ON_HOST)

    def decided(ports: list[int], last: LastPass) -> tuple[Decision | Unschedulable, LastPass]:
        agents = {name: agent_facts(name, 1, tcp_ports=ports, allow_host_network=True) for name in ("agent1", "agent2")}
        answers = Answers(readings(**agents), pools, NOW, last)
        answer = answers.decide(entry)
        return answer, answers.result({entry.id: (entry, answer)} if isinstance(answer, Unschedulable) else {})

    first, last = decided([8000], LastPass())
    again, last = decided([8000], last)
    assert isinstance(first, Unschedulable)
    assert (first.reason, counted.take()[0]) == (again.reason if isinstance(again, Unschedulable) else "", 1)
    assert isinstance(decided([], last)[0], Decision)


def test_equal_requests_share_a_refusal_that_is_not_about_room(counted: Counted) -> None:
    entries = [waiting(number, apps=["jupyter"], architecture="arm64") for number in (1, 2, 3)]
    found, _last = run(entries, full())
    assert (len(found), counted.take()[0]) == (3, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_all_that_are_due_cost_no_more_than_the_first_of_them(counted: Counted, policy: str) -> None:
    entries = [waiting(number, 1 + number % 8, skipped=4) for number in range(1, 201)]
    found, last = run(entries, full(), policy=policy)
    assert counted.take() == (1, 1)
    assert {answer.reason for _entry, answer in found[1:] if isinstance(answer, Unschedulable)} == {
        "it waits behind session-1, which 4 later sessions have skipped"
    }
    run(entries, full(), last, policy)
    assert counted.take() == (0, 0)


def test_what_could_never_start_is_judged_once_for_each_kind_though_all_are_due(counted: Counted) -> None:
    entries = [waiting(number, 9 + number % 3, skipped=4) for number in range(1, 91)]
    found, last = run(entries, full())
    assert (len(found), counted.take()) == (90, (3, 3))
    run(entries, full(), last)
    assert counted.take() == (0, 0)


def test_only_the_first_answers_name_the_sessions_that_would_have_to_end(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NAMED_BLOCKERS", 2)
    found, _last = run([waiting(number, number) for number in (1, 2, 3)], full())
    endings = [
        "it fits when these end: holder" in answer.reason for _e, answer in found if not isinstance(answer, Decision)
    ]
    assert (endings, counted.named) == ([True, True, False], 2)


def test_the_record_of_a_session_has_the_answer_of_the_pass_unless_it_was_updated_since() -> None:
    entry = waiting(1)
    found, last = run([entry], full())
    assert isinstance(found[0][1], Unschedulable)
    assert last.record(entry)["pending"] == {"reason": found[0][1].reason, "shortfall": found[0][1].shortfall}
    assert last.record(waiting(2)) == waiting(2).record
    for other in (dataclasses.replace(entry, updated_at=NOW + 99), dataclasses.replace(entry, state="RUNNING")):
        assert last.record(other) == other.record
    lost = dataclasses.replace(last, lacks={})
    assert lost.record(entry) == entry.record


GONE = "not in the inventory, or hidden by --limit"


def retried(**changes: Any) -> QueueEntry:
    """Return a session with a command that waits after a start on agent1."""
    made = plan({"agent1": 1}, command="python train.py")
    asked = spec(name="train-llm", command="python train.py")
    return requested(1, asked, **{"id": SESSION_ID, "plan": made, **changes})


@pytest.mark.parametrize(("left_out", "why"), [({"agent1": "unreachable"}, "unreachable"), ({}, GONE)])
def test_a_session_starts_nowhere_else_while_an_agent_of_its_last_start_is_away(
    left_out: dict[str, str], why: str
) -> None:
    ((_entry, answer),), _last = run([retried()], readings("agent2", left_out=left_out))
    assert isinstance(answer, Unschedulable)
    assert answer.reason == (
        f"agent1 may have begun its command, and cannot be used (agent1: {why}): make it available again, or end the"
        " session with terminate_session and create it again"
    )
    assert isinstance(run([retried()], readings("agent1", "agent2"))[0][0][1], Decision)
    assert isinstance(run([retried(plan=None)], readings("agent2", left_out=left_out))[0][0][1], Decision)
    # Without a command nothing can run twice.
    interactive = requested(1, spec(name="train-llm"), id=SESSION_ID, plan=plan({"agent1": 1}))
    assert isinstance(run([interactive], readings("agent2", left_out=left_out))[0][0][1], Decision)


def test_a_due_session_that_waits_for_an_agent_delays_no_other() -> None:
    entries = [retried(skipped=4), waiting(2)]
    found = {entry.id: answer for entry, answer in run(entries, readings("agent2"))[0]}
    assert [type(found[entry.id]) for entry in entries] == [Unschedulable, Decision]


def test_a_due_session_that_no_network_allows_delays_no_other(counted: Counted) -> None:
    due = waiting(1, 8, skipped=4, cluster_size=2, cluster_mode="multi-node")

    def room(**changes: Any) -> ClusterState:
        return readings(agent1=agent_facts("agent1", allocated={"cpu": 7}), agent2=agent_facts("agent2", **changes))

    blocked, last = run([due, waiting(2)], room())
    assert [type(answer) for _entry, answer in blocked] == [Unschedulable, Unschedulable]
    for changes in ({"underlay": None}, {"udp_ports": {4789: "flanneld"}}):
        counted.take()
        found, last = run([due, waiting(2)], room(**changes), last)
        assert [type(answer) for _entry, answer in found] == [Unschedulable, Decision]
        assert counted.take()[1] == 1
        again, last = run([due, waiting(2)], room(**changes), last)
        assert [type(answer) for _entry, answer in again] == [Unschedulable, Decision]
        assert counted.take()[1] == 0


def test_what_an_address_in_the_inventory_rules_out_is_judged_again_by_the_next_pass(counted: Counted) -> None:
    pools = dataclasses.replace(POOLS, gateways=["198.51.100.1"])
    due = waiting(1, 8, skipped=4)
    facts = agent_facts("agent1", allocated={"cpu": 8})
    address = facts.underlay.host if facts.underlay else ""
    foreign = dataclasses.replace(readings(agent1=facts), addresses={"agent1": ["203.0.113.1"], "agent2": [address]})
    answers = Answers(foreign, pools, NOW)
    assert [answers.blocks(entry) for entry in (due, dataclasses.replace(due, name="other"))] == [False, False]
    assert counted.take() == (0, 1)
    fixed = dataclasses.replace(foreign, addresses={"agent1": [address]})
    assert Answers(fixed, pools, NOW, answers.result({})).blocks(due)


def test_what_is_known_to_be_feasible_is_not_validated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[SessionSpec] = []
    monkeypatch.setattr(module, "check_stored", checked.append)
    answers = Answers(full(), POOLS, NOW)
    for number in (1, 2, 3):
        assert answers.is_feasible(waiting(number))
    assert len(checked) == 1
