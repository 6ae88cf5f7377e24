"""A pass over a queue: what is decided, and what is known from the pass before."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import Device
from ansible_collections.backendai.cluster.plugins.module_utils._model.images import ImageDisk
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
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.answers import Answers, digest_of_inputs
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
    occupied,
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


def waiting(number: int, cpu: int = 1, **options: Any) -> QueueEntry:
    request = spec(**{"name": f"session-{number}", "resources": {"cpu": cpu, "mem": "64m"}, **options})
    return requested(number, request)


def passed(times: int, after: int = 1) -> list[QueueEntry]:
    """Return so many sessions that run, and came after that number of those that wait: they have skipped these."""
    arrived = NOW + after + 0.5
    return [requested(1000 + n, state="RUNNING", has_started=True, enqueued_at=arrived) for n in range(times)]


def run(
    entries: list[QueueEntry], cluster: ClusterState, policy: str = "fifo"
) -> list[tuple[QueueEntry, Decision | Unschedulable]]:
    """Return the outcome of a pass."""
    return schedule(entries, Answers(cluster, POOLS, NOW), QueuePolicy(policy, 4))


@pytest.mark.parametrize("policy", POLICIES)
def test_each_kind_of_request_is_refused_once(counted: Counted, policy: str) -> None:
    entries = [waiting(number, 1 + number % 3, env={"TOKEN": f"{number}"}) for number in range(1, 61)]
    assert (len(run(entries, full(), policy)), counted.take()) == (60, (3, 0))


def test_every_option_that_may_make_a_difference_to_the_room_does() -> None:
    options = {field.name for field in dataclasses.fields(SessionSpec)}
    assert options - IRRELEVANT == {
        "image", "cluster_mode", "cluster_size", "resources", "roles", "mounts", "resource_group", "architecture",
        "agent_selection", "designated_agents", "designated_agents_mode", "network_driver", "infiniband",
        "agent_labels", "gpu", "topology",
    }  # fmt: skip


def test_after_a_start_what_was_refused_is_tried_again(counted: Counted) -> None:
    room = full(allocated={"cpu": 7, "mem": 15 * GIB}, sessions=[])
    found = run([waiting(1, 2), waiting(2), waiting(3, 2)], room)
    assert [isinstance(answer, Decision) for _entry, answer in found] == [False, True, False]
    assert counted.take() == (3, 0)


def test_a_session_is_not_refused_for_another_one_with_its_request() -> None:
    held = dataclasses.replace(plan({"agent1": 1}, name="session-1"), id=waiting(9).id)
    entries = [waiting(1), waiting(2)]
    found = run(entries, full(allocated={}, sessions=[]).with_plan(held))
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


def test_on_a_host_network_a_session_is_refused_for_its_own_ports_alone() -> None:
    pools = dataclasses.replace(POOLS, gateways=["gateway1"])
    agents = {name: agent_facts(name, 1, tcp_ports=[8000], allow_host_network=True) for name in ("agent1", "agent2")}
    answers = Answers(readings(**agents), pools, NOW)
    apps = ({"name": "page", "port": port, "command": "serve"} for port in (8000, 8001))
    refused, fits = [answers.decide(waiting(number, apps=[app], **ON_HOST)) for number, app in enumerate(apps, 1)]
    assert (type(refused), type(fits)) == (Unschedulable, Decision)


def test_equal_requests_share_a_refusal_that_is_not_about_room(counted: Counted) -> None:
    entries = [waiting(number, apps=["jupyter"], architecture="arm64") for number in (1, 2, 3)]
    assert (len(run(entries, full())), counted.take()[0]) == (3, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_all_that_are_due_cost_no_more_than_the_first_of_them(counted: Counted, policy: str) -> None:
    entries = [waiting(number, 1 + number % 8) for number in range(1, 201)]
    found = run([*entries, *passed(4, after=200)], full(), policy)
    assert counted.take() == (1, 1)
    assert {answer.reason for _entry, answer in found[1:] if isinstance(answer, Unschedulable)} == {
        "it waits behind session-1, which 4 later sessions have skipped"
    }


def test_what_could_never_start_is_judged_once_for_each_kind_though_all_are_due(counted: Counted) -> None:
    entries = [waiting(number, 9 + number % 3) for number in range(1, 91)]
    found = run([*entries, *passed(4, after=90)], full())
    assert (len(found), counted.take()) == (90, (3, 3))


def test_only_the_first_answers_name_the_sessions_that_would_have_to_end(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NAMED_BLOCKERS", 2)
    found = run([waiting(number, number) for number in (1, 2, 3)], full())
    endings = [
        "it fits when these end: holder" in answer.reason for _e, answer in found if not isinstance(answer, Decision)
    ]
    assert (endings, counted.named) == ([True, True, False], 2)


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
    ((_entry, answer),) = run([retried()], readings("agent2", left_out=left_out))
    assert isinstance(answer, Unschedulable)
    assert answer.reason == (
        f"agent1 may have begun its command, and cannot be used (agent1: {why}): make it available again, or end the"
        " session with terminate_session and create it again"
    )
    assert isinstance(run([retried()], readings("agent1", "agent2"))[0][1], Decision)
    assert isinstance(run([retried(plan=None)], readings("agent2", left_out=left_out))[0][1], Decision)
    # Without a command nothing can run twice.
    interactive = requested(1, spec(name="train-llm"), id=SESSION_ID, plan=plan({"agent1": 1}))
    assert isinstance(run([interactive], readings("agent2", left_out=left_out))[0][1], Decision)


def test_a_due_session_that_waits_for_an_agent_delays_no_other() -> None:
    entries = [retried(), waiting(2)]
    found = {entry.id: answer for entry, answer in run([*entries, *passed(4)], readings("agent2"))}
    assert [type(found[entry.id]) for entry in entries] == [Unschedulable, Decision]


def test_a_due_session_that_no_network_allows_delays_no_other() -> None:
    due = waiting(1, 8, cluster_size=2, cluster_mode="multi-node")

    def outcome(**changes: Any) -> list[type]:
        room = occupied(agent1=agent_facts("agent1", allocated={"cpu": 7}), agent2=agent_facts("agent2", **changes))
        return [type(answer) for _entry, answer in run([due, waiting(2), *passed(4)], room)]

    assert outcome() == [Unschedulable, Unschedulable]
    for changes in ({"underlay": None}, {"udp_ports": {4789: "flanneld"}}):
        assert outcome(**changes) == [Unschedulable, Decision]


def test_a_due_session_that_an_address_in_the_inventory_rules_out_delays_no_other(counted: Counted) -> None:
    pools = dataclasses.replace(POOLS, gateways=["198.51.100.1"])
    due = waiting(1, 8)
    facts = agent_facts("agent1", allocated={"cpu": 8})
    address = facts.underlay.host if facts.underlay else ""
    foreign = dataclasses.replace(occupied(agent1=facts), addresses={"agent1": ["203.0.113.1"], "agent2": [address]})
    answers = Answers(foreign, pools, NOW)
    assert [answers.blocks(entry) for entry in (due, dataclasses.replace(due, name="other"))] == [False, False]
    assert counted.take() == (0, 1)
    fixed = dataclasses.replace(foreign, addresses={"agent1": [address]})
    assert Answers(fixed, pools, NOW).blocks(due)


def test_a_due_session_that_was_not_judged_is_one_that_others_wait_behind(counted: Counted) -> None:
    answers = Answers(full(), POOLS, NOW)
    never, some_time = waiting(1, 9), waiting(2, 8)
    assert [answers.may_block(entry) for entry in (never, some_time)] == [True, True]
    assert counted.take() == (0, 0)
    assert [answers.blocks(entry) for entry in (never, some_time)] == [False, True]
    assert [answers.may_block(entry) for entry in (never, some_time)] == [False, True]


def test_a_due_session_that_waits_for_other_software_delays_no_other() -> None:
    pools = dataclasses.replace(POOLS, gateways=["gateway1"], first_published_port=30000, last_published_port=30001)
    small, busy = agent_facts("agent2", 4), agent_facts("agent1", tcp_ports=[30000, 30001])
    stranger = bare_session(bare_plan("session-1", NOW, {"agent1": [{"cpu": 2}]}))
    cases = {
        "ports": readings(agent1=busy, agent2=small),
        "cores": readings(agent1=agent_facts("agent1", allocated={"cpu": 2}), agent2=small),
        "name": readings(agent1=agent_facts("agent1", sessions=[stranger]), agent2=small),
    }
    for what, cluster in cases.items():
        entries = [waiting(1, 8), waiting(2), *passed(4)]
        found = schedule(entries, Answers(cluster, pools, NOW), QueuePolicy("fifo", 4))
        assert [type(answer) for _entry, answer in found] == [Unschedulable, Decision], what


def test_what_is_known_to_be_feasible_is_not_validated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[SessionSpec] = []
    monkeypatch.setattr(module, "check_stored", checked.append)
    answers = Answers(full(), POOLS, NOW)
    for number in (1, 2, 3):
        assert answers.is_feasible(waiting(number))
    assert len(checked) == 1


# ---- what a pass has seen


def digest(cluster: ClusterState, *entries: QueueEntry, rules: Any = "fifo") -> str:
    return digest_of_inputs(entries or [waiting(1)], cluster, POOLS, rules)


@pytest.mark.parametrize(
    "changes",
    [
        {"allocated": {"cpu": 7, "mem": 16 * GIB}},
        {"capacity": {"cpu": 8, "mem": 17 * GIB}},
        {"schedulable": False},
        {"architecture": "arm64"},
        {"labels": ["fast"]},
        {"max_containers": 9},
        {"containers": 3},
        {"sessions": []},
        {"tcp_ports": [30000]},
        {"udp_ports": {4789: "flanneld"}},
        {"devices": [Device("cuda.device", "0", model="H100")]},
        {"unusable_paths": {"/data": Unusable("is missing")}},
        {"unusable_images": {"registry/x": "needs a login"}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_pass_is_made_again_when_an_agent_has_changed(changes: dict[str, Any]) -> None:
    assert digest(full(**changes)) != digest(full())


def test_a_pass_is_made_again_when_an_agent_goes_or_its_inventory_changes() -> None:
    gone = dataclasses.replace(full(), unavailable={"agent4": "it is off"}, unreachable=["agent4"])
    known = dataclasses.replace(gone, inventory={"agent4": InventoryAgent("default", frozenset({"fast"}))})
    other = dataclasses.replace(gone, inventory={"agent4": InventoryAgent("default", frozenset())})
    reason = dataclasses.replace(known, unavailable={"agent4": "it hangs"})
    addressed = dataclasses.replace(known, addresses={"agent1": ["192.0.2.1"]})
    assert len({digest(state) for state in (full(), gone, known, other, reason, addressed)}) == 6


@pytest.mark.parametrize(
    "changed",
    [
        [requested(1), requested(2)],
        [requested(1, priority=11)],
        [requested(1, has_started=True)],
        [requested(1, user="bob")],
        [requested(1, updated_at=NOW)],
        [requested(1, spec(name="session-1", cluster_size=7))],
        [requested(1, state="CREATING")],
    ],
    ids=["one more", "priority", "started", "owner", "updated", "request", "state"],
)
def test_a_pass_is_made_again_when_the_queue_has_changed(changed: list[QueueEntry]) -> None:
    assert digest(full(), *changed) != digest(full(), requested(1))


def test_a_pass_is_made_again_with_other_options() -> None:
    assert digest(full(), rules="lifo") != digest(full())


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ({"tcp_ports": [22]}, {"tcp_ports": [22, 45001]}, True),
        ({}, {"tcp_ports": [POOLS.last_published_port]}, False),
        ({}, {"tcp_ports": [POOLS.last_host_port]}, False),
        ({}, {"udp_ports": {53211: "another program"}}, True),
        ({"udp_ports": {4789: "the link a"}}, {"udp_ports": {4789: "the link b"}}, False),
    ],
    ids=["TCP", "published", "host", "UDP", "VXLAN"],
)
def test_of_sockets_only_those_on_ports_that_sessions_may_get_make_a_pass(
    before: dict[str, Any], after: dict[str, Any], same: bool
) -> None:
    assert (digest(full(**before)) == digest(full(**after))) is same


@pytest.mark.parametrize(
    ("options", "state", "same"),
    [
        (ON_HOST, "PENDING", False),
        (ON_HOST, "RUNNING", True),
        ({**ON_HOST, "network_driver": "vxlan"}, "PENDING", True),
    ],
    ids=["waits", "runs", "of another network"],
)
def test_the_port_of_an_app_on_the_agents_network_makes_a_pass(options: Any, state: str, same: bool) -> None:
    app = {"name": "page", "port": 8000, "command": "serve"}
    entry = dataclasses.replace(waiting(1, apps=[app], **options), state=state)
    assert (digest(full(), entry) == digest(full(tcp_ports=[8000]), entry)) is same


def test_what_changes_all_the_time_and_decides_nothing_makes_no_pass() -> None:
    disk = ImageDisk("/var/lib/docker", 1, 2, {})
    lived = full()
    (part,) = lived.facts["agent1"].sessions
    older = dataclasses.replace(part, lived=99, idle=7)
    changed = full(warnings=["the disk is nearly full"], image_disk=disk, sessions=[older])
    refused = dataclasses.replace(waiting(1), record={**waiting(1).record, "pending": {"reason": "no room"}})
    assert digest(changed, refused) == digest(lived)
