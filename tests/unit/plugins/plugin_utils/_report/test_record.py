"""Records and the session table."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import ContainerState, PublicKeys
from ansible_collections.backendai.cluster.plugins.module_utils._model.plain_data import DataError
from ansible_collections.backendai.cluster.plugins.plugin_utils._placement.place import Unschedulable
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import Session
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import (
    complete_record,
    describe_pending,
    ended_record,
    session_record,
    stranger_record,
    to_json,
    unplanned_record,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.session_table import session_table
from tests.unit.builders import NOW, SESSION_ID, agent_facts, held_session, holders, plan, readings, spec

KEYS = [
    "id",
    "name",
    "status",
    "cluster_mode",
    "cluster_size",
    "requested_cluster_mode",
    "resource_group",
    "network",
    "kernels",
    "apps",
    "mounts",
    "pending",
    "error",
    "user",
    "uid",
    "image",
    "resources",
    "created_at",
    "started_at",
    "ended_at",
    "ends_at",
    "reason",
    "exit_code",
    "grace_exceeded",
    "queue_position",
    "host_keys",
    "recorded",
]
UNKNOWN = dict.fromkeys(KEYS[-8:-2])
KERNEL_KEYS = [
    "id",
    "role",
    "index",
    "rank",
    "hostname",
    "agent",
    "address",
    "container",
    "status",
    "image_digest",
]


def session_of(*changes: dict[str, Any], counts: dict[str, int] | None = None) -> Session:
    """Return a session of two and two, each with its changes."""
    session_plan = plan(counts or {"agent1": 2, "agent2": 2})
    facts = {
        name: agent_facts(name, sessions=[held_session(session_plan, name, **change)])
        for name, change in zip(session_plan.agents, changes or [{}] * len(session_plan.agents), strict=False)
    }
    return readings(recorded=[session_plan], **facts).sessions[SESSION_ID]


STOPPED = {"stopped": {"sub1": ("exited", None)}}


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        (({}, {}), "RUNNING"),
        (({"committed": False}, {"committed": False}), "CREATING"),
        (({}, {"committed": False}), "CREATING"),
        (({"committed": False}, {"committed": False, "expired": True}), "ERROR"),
        (({}, {"committed": False, "expired": True}), "ERROR"),
        (({}, {"containers": {}}), "DEGRADED"),
        ((STOPPED, {}), "DEGRADED"),
        (({},), "DEGRADED"),
    ],
    ids=[
        "all committed, all running",
        "none committed",
        "one not yet committed",
        "one given up",
        "one given up after others committed",
        "containers missing",
        "a container stopped",
        "an agent missing",
    ],
)
def test_the_status_follows_from_what_the_agents_hold(changes: tuple[dict[str, Any], ...], status: str) -> None:
    assert session_of(*changes).status == status


def test_sessions_are_gathered_from_all_agents_by_id() -> None:
    session_plan = plan({"agent1": 1, "agent2": 1})
    facts = {name: agent_facts(name, sessions=[held_session(session_plan, name)]) for name in ("agent2", "agent1")}
    facts["agent3"] = agent_facts("agent3")
    cluster = readings(recorded=[session_plan], **facts)
    assert {name: list(session.parts) for name, session in cluster.sessions.items()} == {
        SESSION_ID: ["agent1", "agent2"]
    }
    assert cluster.strangers == {}


def test_a_session_without_a_record_is_nobodys_and_has_what_its_agents_say() -> None:
    cluster = readings(**holders(plan({"agent1": 1, "agent2": 1}), stopped={"sub1": ("exited", 3)}))
    assert cluster.sessions == {}
    record = stranger_record(SESSION_ID, cluster.strangers[SESSION_ID])
    assert list(record) == KEYS
    assert {key for kernel in record["kernels"] for key in kernel} == {*KERNEL_KEYS}
    told = [tuple(kernel[key] for key in ("hostname", "agent", "container", "status")) for kernel in record["kernels"]]
    assert told == [
        ("main1", "agent1", "backendai-train-llm-main1", "running"),
        ("sub1", "agent2", "backendai-train-llm-sub1", "exited"),
    ]
    shown = (record["name"], record["status"], record["user"], record["uid"], record["recorded"])
    assert shown == ("train-llm", "DEGRADED", None, None, False)
    assert (record["apps"], record["host_keys"], record["network"], record["created_at"]) == ([], {}, None, NOW)


@pytest.mark.parametrize(
    ("changes", "status"),
    [({}, "RUNNING"), ({"committed": False}, "CREATING"), ({"committed": False, "expired": True}, "ERROR")],
)
def test_the_status_of_a_session_without_a_record_is_what_its_agents_say(changes: Any, status: str) -> None:
    assert stranger_record(SESSION_ID, {"agent1": held_session(plan(), "agent1", **changes)})["status"] == status


def test_a_session_without_a_record_is_not_whole_where_an_agent_has_no_container_of_it() -> None:
    parts = holders(plan({"agent1": 1, "agent2": 1}))
    (whole,), (empty,) = parts["agent1"].sessions, parts["agent2"].sessions
    record = stranger_record(SESSION_ID, {"agent1": whole, "agent2": dataclasses.replace(empty, states=())})
    assert record["status"] == "DEGRADED"
    listed = session_table([(stranger_record(SESSION_ID, {"agent1": whole}), NOW)], NOW)
    assert listed[1].split() == ["train-llm", "(no", "record)", "-", "-", "-", "RUNNING?", "agent1", "0s", "-"]


def test_the_record_of_a_session_over_two_agents() -> None:
    session_plan = plan({"agent1": 1, "agent2": 1})
    assert session_plan.network is not None
    record = session_record(session_plan, "RUNNING", {"main1": ContainerState("running", "sha256:1")})
    assert list(record) == KEYS
    assert [list(kernel) for kernel in record["kernels"]] == [KERNEL_KEYS, KERNEL_KEYS]
    assert record == {
        "id": SESSION_ID,
        "name": "train-llm",
        "status": "RUNNING",
        "cluster_mode": "multi-node",
        "cluster_size": 2,
        "requested_cluster_mode": "multi-node",
        "resource_group": "default",
        "network": {
            "driver": "vxlan",
            "name": "backendai-train-llm",
            "subnet": session_plan.network.subnet,
            "mtu": 1450,
            "vni": session_plan.network.vni,
        },
        "kernels": [
            {
                "id": SESSION_ID,
                "role": "main",
                "index": 1,
                "rank": 0,
                "hostname": "main1",
                "agent": "agent1",
                "address": session_plan.kernels[0].address,
                "container": "backendai-train-llm-main1",
                "status": "running",
                "image_digest": "sha256:1",
            },
            {
                "id": session_plan.kernels[1].id,
                "role": "sub",
                "index": 1,
                "rank": 1,
                "hostname": "sub1",
                "agent": "agent2",
                "address": session_plan.kernels[1].address,
                "container": "backendai-train-llm-sub1",
                "status": "unknown",
                "image_digest": None,
            },
        ],
        "apps": [],
        "mounts": [],
        "pending": None,
        "error": None,
        "user": session_plan.user,
        "uid": None,
        "host_keys": {},
        "recorded": True,
        "image": session_plan.kernels[0].image,
        "resources": {
            "container": session_plan.kernels[0].resources,
            "total": {slot: 2 * amount for slot, amount in session_plan.kernels[0].resources.items()},
        },
        "created_at": session_plan.created_at,
        "started_at": session_plan.created_at,
        **UNKNOWN,
    }
    assert list(record["network"]) == ["driver", "name", "subnet", "mtu", "vni"]


def test_the_record_of_a_session_on_one_agent_has_no_identifier() -> None:
    network = session_record(plan({"agent1": 2}), "RUNNING")["network"]
    assert (network["driver"], network["vni"], network["mtu"]) == ("bridge", None, 1500)


def test_the_record_of_a_session_of_one_has_no_network() -> None:
    record = session_record(plan({"agent1": 1}), "RUNNING")
    assert record["network"] is None
    assert record["kernels"][0]["address"] is None


def test_the_record_of_a_failure_has_its_reason() -> None:
    assert session_record(plan(), "ERROR", error="agent1: no")["error"] == "agent1: no"


def test_the_record_of_a_session_that_waits() -> None:
    session_spec = spec(cluster_size=4, cluster_mode="multi-node", resource_group="gpu")
    record = unplanned_record(
        session_spec,
        session_spec.name,
        "PENDING",
        no_room=Unschedulable("no room", {"cpu": 4, "mem": 1073741824}),
    )
    assert list(record) == KEYS
    assert record == {
        "id": None,
        "name": "train-llm",
        "status": "PENDING",
        "cluster_mode": "multi-node",
        "cluster_size": 4,
        "requested_cluster_mode": "multi-node",
        "resource_group": "gpu",
        "network": None,
        "kernels": [],
        "apps": [],
        "mounts": [],
        "pending": {"reason": "no room", "shortfall": {"cpu": 4, "mem": 1073741824}},
        "error": None,
        "user": None,
        "uid": None,
        "host_keys": {},
        "recorded": True,
        "image": session_spec.image,
        "resources": {
            "container": session_spec.resources,
            "total": {slot: 4 * amount for slot, amount in session_spec.resources.items()},
        },
        "created_at": None,
        "started_at": None,
        **UNKNOWN,
    }


def test_the_record_of_a_request_that_was_never_understood() -> None:
    record = unplanned_record(None, "x", "ERROR", error="session_name: 'x' …")
    assert list(record) == KEYS
    assert (record["cluster_size"], record["pending"], record["error"]) == (None, None, "session_name: 'x' …")


def test_containers_are_gathered_from_all_agents_and_none_has_a_say_about_those_of_others() -> None:
    session = session_of()
    assert list(session.containers) == ["main1", "sub1", "sub2", "sub3"]
    lie = {"main1": ContainerState("exited", None, 1), "sub2": ContainerState("running", None)}
    parts = {**session.parts, "agent2": held_session(session.plan, "agent2", containers=lie)}
    containers = Session(session.plan, parts).containers
    assert {name: state.status for name, state in containers.items()} == dict.fromkeys(
        ("main1", "sub1", "sub2"), "running"
    )


def test_a_file_of_records_is_json_that_people_can_read() -> None:
    text = to_json([{"id": "1"}])
    assert json.loads(text) == [{"id": "1"}]
    assert text.endswith("]\n")
    assert len(text.splitlines()) > 1


def test_the_record_of_a_session_that_is_over_says_why_and_when() -> None:
    record = session_record(plan({"agent1": 1}), "RUNNING")
    times = {"created_at": NOW - 60, "ended_at": NOW, "ends_at": None}
    ending = {"reason": "the command ended with exit code 3", "exit_code": 3, **times}
    assert ended_record(record, "TERMINATED", "the command ended with exit code 3", 3, NOW - 60, NOW) == {
        **record,
        "status": "TERMINATED",
        **ending,
    }
    assert list(ended_record(record, "TERMINATED", "", None, NOW, NOW)) == KEYS


@pytest.mark.parametrize(("status", "error"), [("ERROR", "no image"), ("CANCELLED", None), ("TERMINATED", None)])
def test_the_record_of_an_ended_session_has_its_error(status: str, error: str | None) -> None:
    session_spec = spec()
    record = unplanned_record(
        session_spec, session_spec.name, "PENDING", SESSION_ID, no_room=Unschedulable("no room", {"cpu": 1})
    )
    ending = ended_record(record, status, "no image", None, NOW, NOW)
    assert (ending["status"], ending["pending"], ending["error"]) == (status, None, error)


def test_why_a_session_waits_is_a_reason_and_a_shortfall() -> None:
    assert describe_pending(Unschedulable("no room", {"cpu": 1}, {"main": 1}, ("other",))) == {
        "reason": "no room",
        "shortfall": {"cpu": 1},
    }


def test_the_table_shows_sessions_newest_last_and_why_they_wait_or_ended() -> None:
    running = session_record(plan({"agent1": 2, "agent2": 2}), "RUNNING")
    session_spec = spec(name="lone-wolf")
    waits = unplanned_record(
        session_spec, session_spec.name, "PENDING", no_room=Unschedulable("no room for 1", {"cpu": 1})
    )
    ended = ended_record({**running, "name": "done"}, "TERMINATED", "on request", None, NOW, NOW)
    failed = session_record(plan({"agent1": 1}, name="broken"), "ERROR", error="agent1: no image")
    running = {**running, "ends_at": NOW + 5 * 3600 + 2}
    waits["queue_position"] = 2
    never_seen = unplanned_record(None, None, "TERMINATED")
    sessions = [(waits, NOW + 7200), (running, NOW), (ended, NOW - 3600), (failed, NOW + 1), (never_seen, NOW + 7201)]
    assert session_table(sessions, NOW + 3 * 3600 + 1) == [
        "NAME       USER   MODE        SIZE  CPU/GPU  STATUS      AGENTS         AGE  ENDS",
        "done       alice  Multi-node  4     4/0      TERMINATED  agent1,agent2  4h   -     on request",
        "train-llm  alice  Multi-node  4     4/0      RUNNING     agent1,agent2  3h   2h",
        "broken     alice  -           1     1/0      ERROR       agent1         3h   -     agent1: no image",
        "lone-wolf  -      -           1     1/0      PENDING     -              1h   -     #2: no room for 1",
        "-          -      -           -     -        TERMINATED  -              1h   -",
    ]


def test_the_wide_table_adds_id_group_image_and_the_resources_of_one_container() -> None:
    session_plan = plan({"agent1": 2})
    heading, line = session_table([(session_record(session_plan, "RUNNING"), NOW)], NOW, wide=True)
    assert heading.split() == [
        "NAME",
        "USER",
        "MODE",
        "SIZE",
        "CPU/GPU",
        "STATUS",
        "AGENTS",
        "AGE",
        "ENDS",
        "ID",
        "GROUP",
        "IMAGE",
        "EACH",
    ]
    assert line.endswith(f"{SESSION_ID}  default  {session_plan.images[0]}  cpu 1, mem 1g")


def test_the_table_counts_accelerators_of_all_containers() -> None:
    session_spec = spec(cluster_size=3, resources={"cpu": 2, "mem": "1g", "cuda.device": 1})
    record = unplanned_record(session_spec, session_spec.name, "PENDING")
    assert session_table([(record, NOW)], NOW)[1].split()[4] == "6/3"


def test_what_a_stored_record_lacks_is_not_known() -> None:
    record = {
        name: value
        for name, value in unplanned_record(None, "x", "PENDING").items()
        if name in KEYS[:13] and name != "mounts"
    }
    completed = {**dict.fromkeys(KEYS), **record, "reason": "why", "host_keys": {}, "mounts": [], "recorded": True}
    assert complete_record({**record, "reason": "why"}) == completed


def test_a_table_of_nothing_has_its_heading() -> None:
    assert session_table([], NOW) == ["NAME  USER  MODE  SIZE  CPU/GPU  STATUS  AGENTS  AGE  ENDS"]


@pytest.mark.parametrize(
    ("seconds", "age"),
    [
        (-5, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (86399, "23h"),
        (86400, "1d"),
        (86400 * 400, "400d"),
    ],
)
def test_ages_are_shown_in_their_largest_unit(seconds: float, age: str) -> None:
    assert session_table([(session_record(plan({"agent1": 1}), "RUNNING"), NOW)], NOW + seconds)[1].split()[-2] == age


def test_the_record_has_the_owner_and_the_host_keys() -> None:
    owned = dataclasses.replace(plan({"agent1": 1}), user_uid=1001)
    record = session_record(owned, "RUNNING", host_keys={"main1": "ssh-ed25519 HOST"})
    assert (record["user"], record["uid"], record["host_keys"]) == ("alice", 1001, {"main1": "ssh-ed25519 HOST"})
    ended = ended_record(record, "TERMINATED", "", None, NOW, NOW)
    assert (ended["uid"], ended["host_keys"]) == (1001, record["host_keys"])


def test_public_keys_are_those_that_the_agent_of_each_container_has() -> None:
    made = plan({"agent1": 1, "agent2": 1})
    forged = {"main1": PublicKeys("U", "forged"), "sub1": PublicKeys("U", "H2")}
    held = {
        "agent1": held_session(made, "agent1", public_keys={"main1": PublicKeys("U", "H1")}),
        "agent2": held_session(made, "agent2", public_keys=forged),
    }
    keys = {name: pair.host for name, pair in Session(made, held).public_keys.items()}
    assert keys == {"main1": "H1", "sub1": "H2"}
    assert list(Session(made, {"agent2": held["agent2"]}).public_keys) == ["sub1"]


@pytest.mark.parametrize("key", ["ssh-ed25519 A\n* ssh-ed25519 B", "ssh-ed25519 A\x1b[2J"])
def test_a_key_of_several_lines_is_refused(key: str) -> None:
    data = agent_facts("agent1", sessions=[held_session(plan({"agent1": 1}), "agent1")]).to_dict()
    data["sessions"][0]["public_keys"]["main1"]["host"] = key
    with pytest.raises(DataError, match="public_keys"):
        AgentFacts.from_dict("agent1", data)
