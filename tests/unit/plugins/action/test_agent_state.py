"""The action agent_state: what agents are asked, what it shows and returns, and what it refuses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.template import trust_as_template

from ansible_collections.backendai.cluster.plugins.action import agent_state
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import Answer, Failure
from tests.unit.plugins.action.asked_hosts import GONE, Asked, AskedHosts
from tests.unit.plugins.action.conftest import Run

REPLY: dict[str, Any] = {
    "changed": True,
    "diff": {"before": "", "after": "cordon: disk\n"},
    "cordoned_before": False,
    "description": "cordoned by carol (disk)",
    "sessions": ["a", "b"],
}
AGENTS = ["agent1", "agent2", "agent3"]


class Site:
    """Three agents; ``answers`` are those of agents that answer otherwise than :data:`REPLY`, and ``hidden`` some."""

    def __init__(self) -> None:
        self.hosts: dict[str, dict[str, Any]] = {name: {} for name in AGENTS}
        self.answers: dict[str, Answer] = {}
        self.hidden: list[str] = []
        self.calls: list[AskedHosts] = []

    def answer(self, request: Asked) -> Answer:
        reply = REPLY if request.options["state"] == "present" else {**REPLY, "description": "", "sessions": []}
        return self.answers.get(request.host, reply)

    @property
    def asked(self) -> dict[str, dict[str, Any]]:
        """The options of each request, by the agent; all are of the phase for it."""
        requests = [request for calls in self.calls for request in calls.asked]
        assert {(request.phase, request.seconds) for request in requests} <= {("cordon", agent_state.SECONDS)}
        return {request.host: request.options for request in requests}


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    there = Site()

    @contextlib.contextmanager
    def calls(_action: object, _variables: Mapping[str, Any]) -> Iterator[AskedHosts]:
        there.calls.append(AskedHosts(there.hosts, there.answer))
        yield there.calls[-1]

    action = agent_state.ActionModule
    monkeypatch.setattr(action, "calls", calls)
    monkeypatch.setattr(action, "agents", lambda *_asked: AGENTS)
    monkeypatch.setattr(
        action, "within_limit", lambda _action, names, _variables: [name for name in names if name not in there.hidden]
    )
    monkeypatch.setattr(agent_state.getpass, "getuser", lambda: "carol")
    return there


def state(run: Run, args: dict[str, Any], variables: dict[str, Any] | None = None, **how: bool) -> dict[str, Any]:
    return run(agent_state.ActionModule, args, variables or {}, **how)


def refusal(run: Run, args: dict[str, Any], variables: dict[str, Any] | None = None) -> str:
    with pytest.raises(AnsibleActionFail) as refused:
        state(run, args, variables)
    return str(refused.value)


@pytest.mark.parametrize(
    ("args", "asked", "line"),
    [
        (
            {"state": "cordoned", "reason": "disk"},
            {"state": "present", "reason": "disk", "sessions_end_after": None},
            "takes no new sessions: cordoned by carol (disk); still there: a, b.",
        ),
        (
            {"state": "drained", "deadline": 60},
            {"state": "present", "reason": "", "sessions_end_after": 60},
            "takes no new sessions: cordoned by carol (disk); still there: a, b.",
        ),
        ({"state": "resumed"}, {"state": "absent", "reason": "", "sessions_end_after": None}, "takes new sessions."),
    ],
)
def test_agents_are_told_who_decided_and_the_operator_what_is_true_now(
    run: Run, site: Site, printed: list[str], args: dict[str, Any], asked: dict[str, Any], line: str
) -> None:
    result = state(run, {**args, "agents": "agent1,agent2"})
    assert site.asked == {name: {"by": "carol", **asked} for name in ("agent1", "agent2")}
    assert printed == [f"agent1 {line}", f"agent2 {line}"]
    assert [row["name"] for row in result["agents"]] == ["agent1", "agent2"]
    assert (result["changed"], result["unavailable"], "failed" in result) == (True, {}, False)


@pytest.mark.usefixtures("printed")
def test_what_was_true_before_is_returned_and_no_change_if_nothing_changes(run: Run, site: Site) -> None:
    same = {**REPLY, "changed": False, "cordoned_before": True, "diff": {"before": "", "after": ""}}
    site.answers["agent1"] = same
    result = state(run, {"state": "cordoned", "agents": ["agent1"]})
    names = ("changed", "cordoned_before", "description", "sessions")
    assert result["agents"] == [{"name": "agent1", **{name: same[name] for name in names}}]
    assert result["changed"] is False


@pytest.mark.usefixtures("printed")
def test_what_the_task_does_not_say_is_in_variables_of_the_playbook_and_of_each_agent(run: Run, site: Site) -> None:
    reason = trust_as_template("{{ what }}")
    site.hosts["agent1"] = {"agent_cordon_reason": reason, "what": "disk", "agent_drain_deadline": "60"}
    state(run, {"state": "drained"}, {"agent_names": "agent1,agent3"})
    assert {name: (asked["reason"], asked["sessions_end_after"]) for name, asked in site.asked.items()} == {
        "agent1": ("disk", 60),
        "agent3": ("", 0),
    }


@pytest.mark.usefixtures("printed")
def test_an_agent_that_cannot_be_asked_is_a_failure_after_the_others_are_done(run: Run, site: Site) -> None:
    site.answers |= {"agent1": GONE, "agent2": Failure("no space left.")}
    result = state(run, {"state": "cordoned", "agents": AGENTS, "all_confirmed": True})
    assert ([row["name"] for row in result["agents"]], result["changed"], result["failed"]) == (["agent3"], True, True)
    assert result["unavailable"] == {
        "agent1": {"problem": "unreachable", "reason": "no route to host"},
        "agent2": {"problem": "unusable", "reason": "no space left"},
    }
    assert result["msg"] == "agent1 was not cordoned: no route to host. agent2 was not cordoned: no space left."


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"agent_cordon_reason": "a\nb"}, "agent_cordon_reason: it must be one line of at most 200 characters"),
        ({"agent_drain_deadline": -1}, "agent_drain_deadline: -1 must be 0 to 31622400 seconds"),
        ({"agent_drain_deadline": "soon"}, "agent_*: argument 'drain_deadline' is of type str and we were unable"),
    ],
)
def test_a_variable_of_one_agent_that_makes_no_sense_keeps_no_other_from_it(
    run: Run, site: Site, variables: dict[str, Any], sentence: str
) -> None:
    site.hosts["agent1"] = variables
    result = state(run, {"state": "drained", "agents": ["agent1", "agent2"]})
    assert [*site.asked] == ["agent2"]
    assert result["unavailable"]["agent1"]["reason"].startswith(sentence)
    assert result["failed"]


@pytest.mark.usefixtures("printed")
def test_an_agent_that_a_limit_hides_is_left_out_with_a_warning(
    run: Run, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr("ansible.plugins.action.display.warning", warned.append)
    site.hidden = ["agent2"]
    result = state(run, {"state": "resumed", "agents": AGENTS})
    assert ([*site.asked], "failed" in result) == (["agent1", "agent3"], False)
    assert result["unavailable"] == {"agent2": {"problem": "hidden", "reason": "hidden by --limit"}}
    assert warned == ["agent2 is left out: hidden by --limit."]


ALL = "agents: these are all agents, so no session could start; set all_confirmed=true to confirm."


@pytest.mark.parametrize(
    ("args", "variables", "sentence"),
    [
        ({"deadline": -1}, {}, "deadline: -1 must be 0 to 31622400 seconds."),
        ({"deadline": 10**9}, {}, "deadline: 1000000000 must be 0 to 31622400 seconds."),
        ({"state": "cordoned", "deadline": 1}, {}, "deadline: sessions only end with state=drained."),
        ({"reason": "a\nb"}, {}, "reason: it must be one line of at most 200 characters."),
        ({"reason": "a" * 201}, {}, "reason: it must be one line of at most 200 characters."),
        (
            {"state": "resumed", "reason": "done"},
            {},
            "reason: it is for agents that are taken out of service, not for state=resumed.",
        ),
        ({"agents": ["agnt1"]}, {}, "agents: 'agnt1' is not an agent of the inventory; did you mean agent1?"),
        ({"agents": None}, {}, "agent_names is required: one or more of agent1, agent2, agent3."),
        ({"agents": AGENTS}, {}, ALL),
        ({"agents": AGENTS, "all_confirmed": False}, {"agent_all_confirmed": True}, ALL),
        (
            {"agents": None},
            {"agent_names": AGENTS},
            "agent_names: these are all agents, so no session could start; set agent_all_confirmed=true to confirm.",
        ),
        ({"state": "absent"}, {}, "value of state must be one of: cordoned, drained, resumed, got: absent."),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_agent_is_asked(
    run: Run, site: Site, args: dict[str, Any], variables: dict[str, Any], sentence: str
) -> None:
    assert refusal(run, {"state": "drained", "agents": ["agent1"], **args}, variables) == sentence
    assert site.calls == []


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize(
    ("args", "variables"),
    [
        ({"state": "resumed"}, {}),
        ({"state": "cordoned"}, {"agent_all_confirmed": "true"}),
        ({"state": "cordoned", "all_confirmed": True}, {}),
    ],
)
def test_all_agents_are_taken_out_if_that_is_confirmed_and_taken_back_at_once(
    run: Run, site: Site, args: dict[str, Any], variables: dict[str, Any]
) -> None:
    assert state(run, args, {"agent_names": AGENTS, **variables})["changed"]
    assert [*site.asked] == AGENTS


@pytest.mark.usefixtures("printed")
def test_a_task_may_run_on_each_host_for_itself_but_not_for_others(run: Run, site: Site) -> None:
    variables = {"ansible_play_hosts_all": AGENTS, "inventory_hostname": "agent1"}
    state(run, {"state": "cordoned", "agents": "agent1"}, variables)
    assert [*site.asked] == ["agent1"]
    assert "set run_once: true" in refusal(run, {"state": "cordoned", "agents": "agent2"}, variables)
