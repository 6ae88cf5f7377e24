"""Whatever an agent or a gateway answers, it is left out with one sentence, or what it says can be used."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import operator
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from hypothesis import given, settings

from ansible_collections.backendai.cluster.plugins.action import session_token
from ansible_collections.backendai.cluster.plugins.module_utils._model.cordon import Cordon
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import Device
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import ClusterError
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.images import images_from_dict
from ansible_collections.backendai.cluster.plugins.module_utils._model.timestamp import LAST_SECOND
from ansible_collections.backendai.cluster.plugins.module_utils._model.use import Load
from ansible_collections.backendai.cluster.plugins.module_utils._program.launcher import MARK
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_result import combine_replies
from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_steps import CLAIM, PULL, Start
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import ClusterState
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import QueueEntry, mark_running
from ansible_collections.backendai.cluster.plugins.plugin_utils._report import access, logs, verification_table
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import session_record
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.verification import (
    AgentReports,
    build_verification_report,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.hosts import Hosts
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.outcome import Outcome
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.reconciling import Reconciled
from ansible_collections.backendai.cluster.plugins.plugin_utils.cluster_view import read_answers
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_action import HostAction
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_replies import check_reply
from tests.unit.builders import (
    NOW,
    SESSION_ID,
    agent_facts,
    encrypted_underlay,
    holders,
    plan,
    public_keys,
    queued,
    record,
)
from tests.unit.fuzz.mutations import assert_sentence, damaged, damaged_text, fuzz
from tests.unit.fuzz.reading import refused_at_most, use

OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
PLAN = plan(
    {"agent1": 1, "agent2": 1},
    apps=[{"name": "web", "port": 80}],
    mounts=[{"source": "/a", "target": "/b"}],
    max_lifetime=7200,
    idle_timeout=3600,
)
DRAIN = Cordon("disk", "carol", NOW - 60, NOW + 600)
USED = holders(PLAN, lived=60, idle=30, cordon=DRAIN, load=Load(1.5, (80,)))
CONTAINERS = {"main1": {"status": "running", "image_digest": "sha256:1", "exit_code": None}}
PAIR = {"from": "main1", "to": "sub1", "name": True, "tcp": True, "frame": None, "ssh": False, "ssh_error": "refused"}
PART = {"plan": PLAN.to_dict(), "committed": True, "expired": False, "containers": CONTAINERS}
VERIFIED = {
    **PART,
    "drift": [{"subject": "file x", "actual": None, "expected": "there"}],
    "pairs": [PAIR],
}
LOGGED = {
    "id": SESSION_ID,
    "batch": True,
    "containers": CONTAINERS,
    "logs": {"main1": {"log": '["a"]', "apps": {"web": '["b"]'}, "error": None}},
}
KEYS = {"main1": dataclasses.asdict(public_keys(PLAN)["main1"])}
LINK = {
    "id": SESSION_ID,
    "name": "train-llm",
    "ssh": {"host": "door.example.org", "port": 31000},
    "apps": [{"name": "web", "protocol": "http", "url": "https://door.example.org/"}],
}
DIFF = {"before": "", "after": "x"}
RUNNING = queued(3, id=SESSION_ID, name="train-llm", state="RUNNING", plan=PLAN)
REPLIES: dict[str, dict[str, Any]] = {
    "survey": {"agent": USED["agent1"].to_dict(), "error": None},
    "start": {
        "changed": True,
        "diff": DIFF,
        "sessions": {
            SESSION_ID: {
                "steps": ["claim", "apply"],
                "public_keys": KEYS,
                "containers": CONTAINERS,
                "starting": True,
                "printed": ["a line"],
            }
        },
    },
    "remove": {"changed": True, "diff": DIFF, "sessions": {SESSION_ID: {"failed": "it is busy."}}},
    "pull": {
        "changed": True,
        "diff": DIFF,
        "images": {"lab/python:1": {"id": "sha256:1", "digest": "sha256:1", "reference": ""}},
        "under_way": ["lab/busybox:1"],
        "started": True,
        "progress": "1 of 2 GB",
    },
    "reap": {
        "changed": False,
        "diff": DIFF,
        "failures": {SESSION_ID: "it is busy."},
        "ends": {SESSION_ID: {"grace_exceeded": True, "lost_output": ["main1: no room"]}},
    },
    "wait": {"ended": True, "exit_code": 0},
    "verify": {"parts": [VERIFIED], "error": None},
    "logs": {"parts": [LOGGED], "error": None},
    "marker": {
        "created": ["/b"],
        "observed": {"main1": {"/b": {"marker": True, "names": "0a", "folder": "1:2"}}},
        "leftover": ["/b"],
    },
    "token": {
        "changed": True,
        "session": {"id": SESSION_ID, "name": "train-llm"},
        "links": LINK,
        "expires_at": 1772337597,
        "token": "head.claims.signature",
    },
    "routes": {
        "changed": True,
        "diff": DIFF,
        "links": [LINK],
        "warnings": ["HAProxy is not running."],
        "unrouted": [SESSION_ID],
    },
}
"""A reply of each phase that has all fields."""


def consume(phase: str, reply: dict[str, Any]) -> None:
    """Use a reply as the control node does."""
    take(phase, reply)
    if phase == "survey" and reply["agent"]:
        cluster = ClusterState({"agent1": AgentFacts.from_dict("agent1", reply["agent"])}, {})
        use([queued(2)], cluster)
        use([queued(2), RUNNING], cluster)
    elif phase == "start":
        consume_start(reply)
    elif phase == "pull":
        start = Start({**DECIDED, "agents": ["agent1"]}).after(PULL, {"agent1": reply})
        images = images_from_dict(start.images)["agent1"]
        QueueEntry.from_json(mark_running(queued(2), NOW, record(), images).to_json(), "x.json")
    elif phase == "verify":
        with refused_at_most():
            for parts in ([reply["parts"]], [reply["parts"], [VERIFIED]]):
                answers = AgentReports({f"agent{n}": part for n, part in enumerate(parts, 1)}, {}, ["/b"])
                report = build_verification_report(PLAN, answers)
                "\n".join(verification_table.render_verification(report)).encode()
    elif phase == "marker":
        answers = AgentReports(
            {"agent1": [VERIFIED]}, {}, reply.get("created", []), reply.get("leftover", []), reply.get("observed") or {}
        )
        build_verification_report(PLAN, answers)
    elif phase == "logs":
        with refused_at_most():
            answers = AgentReports({"agent1": reply["parts"]})
            report = logs.read_logs("", SESSION_ID, answers, [], "")
            "\n".join(logs.render_logs(report)).encode()
    elif phase == "token":
        session_token.record_of(reply, str(reply.get("token"))).encode()
        "\n".join(session_token.usage(Path("train.token"), reply, "token")).encode()
    elif phase == "routes":
        "\n".join(
            access.render_access("train-llm", access.session_links(SESSION_ID, {"gateway1": reply["links"]}), "key")
        ).encode()


class Replying:
    """Hosts of which each replies the same."""

    def __init__(self, reply: Mapping[str, Any]) -> None:
        self._reply = reply

    def ask(
        self, phase: str, agents: Iterable[str], *_how: Any, answers: dict[str, Any] | None = None, **_more: Any
    ) -> dict[str, Any]:
        assert phase
        replies = dict.fromkeys(agents, self._reply)
        if answers is not None:
            answers.update(replies)
        return replies

    def give_up(self) -> None:
        raise AssertionError("nothing is under way")


class SurveyedHosts(Hosts):
    """Hosts that need not be surveyed again."""

    def survey(self, names: Iterable[str] | None = None) -> None:
        assert names is not None


def take(phase: str, reply: Mapping[str, Any]) -> None:
    """Use a reply in a run that asks hosts itself: what is said of it, and what it means for the session."""
    told: list[str] = []
    outcome = Outcome(told.append)
    outcome.take("Step", "agent1", reply)
    outcome.add("agent1", reply)
    options = SimpleNamespace(force=False, history_days=30.0)
    site: Any = SimpleNamespace(request=SimpleNamespace(gateways=["gateway1"], run=options, agents=[]))
    hosts = SurveyedHosts(site, Replying(reply), Replying(reply), list, outcome)
    update = {"changed": True, "routes": [], "ended": [SESSION_ID], "vacated": []}
    if phase == "remove":
        _ends, failures = hosts.remove(SESSION_ID, ["agent1"], [])
        assert all(text.strip() for text in failures.values())
    elif phase == "routes":
        hosts.update_gateways(update)
    elif phase == "reap":
        hosts.reap(
            Reconciled({"agent1": [SESSION_ID]}, {}, {"agent1": {OTHER_ID: "n"}}, ["agent1"], [], update, [], [])
        )
    assert [line for line in told if "\n" in line] == []
    hosts_named = {diff[header] for diff in outcome.diffs for header in ("before_header", "after_header")}
    assert hosts_named <= {"agent1", "gateway1"}
    assert all({*diff} == {"before", "after", "before_header", "after_header"} for diff in outcome.diffs)
    json.dumps([outcome.diffs, outcome.warnings])


DECIDED = {
    "id": SESSION_ID,
    "nonce": "n",
    "plan": PLAN.to_dict(),
    "agents": PLAN.agents,
    "public_keys": {},
    "missing_images": {},
    "images": {},
}


def consume_start(reply: dict[str, Any]) -> None:
    """Use the reply of a step, as the only one or as that of a second agent."""
    own = reply["sessions"].get(SESSION_ID)
    start = Start(DECIDED).after(CLAIM, dict.fromkeys(PLAN.agents, own) if own else {})
    assert start.refusals is not None
    json.dumps(start.public_keys)
    with refused_at_most():
        outcome = combine_replies(PLAN, {a: start.outcome_on(a) for a in PLAN.agents}, repairs=False)
        json.dumps(session_record(PLAN, outcome.status, outcome.containers, outcome.error), allow_nan=False)


@pytest.mark.parametrize("phase", REPLIES)
def test_any_reply_is_used_or_refused(phase: str) -> None:
    check_reply(phase, REPLIES[phase])
    consume(phase, REPLIES[phase])

    @settings(fuzz)
    @given(damaged_text({"result": REPLIES[phase]}))
    def try_all(text: bytes) -> None:
        try:
            consume(phase, PrintingHost(text).call(phase, {}, {}, 60))
        except (AnsibleActionFail, ClusterError) as error:
            assert_sentence(error)

    try_all()


FAILED: dict[str, Any] = {"a": {"failed": None}}
JUNK: tuple[Any, ...] = (
    None,
    True,
    7,
    "x",
    "a\nb",
    [],
    [1],
    [[]],
    {},
    {"a": "b"},
    FAILED,
    {**DIFF, "before_header": "agent2"},
)


@pytest.mark.parametrize("phase", REPLIES)
def test_a_field_that_another_phase_has_is_told_or_refused_whatever_it_is(phase: str) -> None:
    for name in sorted({"failed", "msg", *(field for reply in REPLIES.values() for field in reply)}):
        for junk in JUNK:
            answer = json.dumps({"result": {**REPLIES[phase], name: junk}}).encode()
            try:
                take(phase, PrintingHost(answer).call(phase, {}, {}, 60))
            except (AnsibleActionFail, ClusterError) as error:
                assert_sentence(error)


class PrintingHost(HostAction):
    """A host on which the program prints a reply, whatever the request is."""

    def __init__(self, reply: bytes) -> None:
        text = reply.decode("utf-8", "surrogateescape").replace("\n", " ").replace("\r", " ")
        self._completed = {"stdout": f"{MARK}{text}\n", "stderr": "", "rc": 0}
        self._task = SimpleNamespace(check_mode=False, diff=True)

    def run(self, *_args: object, **_options: object) -> dict[str, Any]:
        raise AssertionError("only the reply is read")

    def _interpreter(self, _task_vars: object) -> str:
        return "python3"

    def _accepts_stdin(self) -> bool:
        return True

    @contextlib.contextmanager
    def _suppress_output(self) -> Iterator[None]:
        yield

    def _compute_environment_string(self) -> str:
        return ""

    def _low_level_execute_command(self, *_args: object, **_options: object) -> dict[str, Any]:
        return self._completed


def number_paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to every number in plain data."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, value in items:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield (*path, step)
        yield from number_paths(value, (*path, step))


RESERVING = dataclasses.replace(
    USED["agent1"],
    cordon=DRAIN,
    devices=(Device("cuda.device", "GPU-1", model="NVIDIA H200", memory=140 << 30),),
    capacity={"cpu": 8, "mem": 16 << 30, "cuda.device": 1},
    reserved_ports={OTHER_ID: (30001, 30002)},
    damaged_sessions=(OTHER_ID,),
    underlay=encrypted_underlay(1),
)
OTHERS = {"agent2": USED["agent2"], "agent3": agent_facts("agent3")}


@settings(fuzz, max_examples=fuzz.max_examples * 2)
@given(damaged(RESERVING.to_dict()))
def test_any_facts_are_used_or_the_agent_is_left_out(data: Any) -> None:
    facts: dict[str, AgentFacts] = {}
    error = ""
    try:
        facts = {"agent1": AgentFacts.from_dict("agent1", data)}
    except ClusterError as refused:
        error = str(refused)
        assert_sentence(error)
    assert facts or error.startswith("the facts of agent1 are damaged: ")
    cluster = ClusterState({**facts, **OTHERS}, {"agent1": error} if error else {})
    use([queued(2)], cluster)
    use([queued(2), RUNNING], cluster)


TOO_MUCH = (1e300, -1e300, 10**400, -(10**400), 1 << 64, -(1 << 64), LAST_SECOND + 1, -1)


@pytest.mark.parametrize("number", TOO_MUCH)
@pytest.mark.parametrize("path", list(number_paths(RESERVING.to_dict())), ids=lambda path: ".".join(map(str, path)))
def test_any_number_is_used_or_the_agent_is_left_out(path: tuple[Any, ...], number: float) -> None:
    data = RESERVING.to_dict()
    *outer, last = path
    functools.reduce(operator.getitem, outer, data)[last] = number
    cluster = read_answers({"agent1": {"agent": data}, **{name: {"agent": OTHERS[name].to_dict()} for name in OTHERS}})
    assert cluster.facts.keys() >= OTHERS.keys()
    if abs(number) >= 1 << 64 or "cordon" in path:
        assert cluster.unavailable.keys() == {"agent1"}
    use([queued(2), RUNNING], cluster)
