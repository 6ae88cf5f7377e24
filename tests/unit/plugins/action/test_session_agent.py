"""The action session_agent: options of each phase, and handling of failures."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from ansible_collections.backendai.cluster.plugins.action.session_agent import SECONDS, ActionModule
from ansible_collections.backendai.cluster.plugins.module_utils._module import CAPACITY_OPTIONS
from ansible_collections.backendai.cluster.plugins.module_utils._program.main import PHASES
from ansible_collections.backendai.cluster.plugins.plugin_utils.removed_options import describe_removed_options
from tests.unit.builders import SESSION_ID
from tests.unit.plugins.action.conftest import Run

AGENT = {"docker_host": "unix:///var/run/docker.sock", "state_path": "/var/lib/backendai"}
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"

Asked = list[tuple[str, dict[str, Any], int]]


@pytest.fixture
def requests() -> Asked:
    """Return the requests to agents."""
    return []


@pytest.fixture
def ask(run: Run, requests: Asked) -> Any:
    """Return a function that runs the action with this reply of the agent."""

    def asking(answer: dict[str, Any] | Exception, variables: dict[str, Any] | None = None, **args: Any) -> Any:
        class Asking(ActionModule):
            def call(self, phase: str, options: Any, _task_vars: Any, seconds: int) -> dict[str, Any]:
                requests.append((phase, options, seconds))
                if isinstance(answer, Exception):
                    raise answer
                return answer

        return run(Asking, args, variables or {})

    return asking


@pytest.mark.parametrize("phase", sorted(SECONDS))
def test_every_phase_is_sent_with_its_options(ask: Any, requests: Asked, phase: str) -> None:
    result = ask({"answer": 7}, phase=phase, name="train-llm", lines=7)
    settings = {name: option["default"] for name, option in CAPACITY_OPTIONS.items()}
    variables = {**AGENT, **({"settings": settings} if phase == "survey" else {})}
    assert requests == [(phase, {"name": "train-llm", "lines": 7, **variables}, SECONDS[phase])]
    assert (result["answer"], result["changed"], phase in PHASES) == (7, False, True)


def test_agent_options_come_from_its_variables(ask: Any, requests: Asked) -> None:
    variables = {"agent_docker_host": "unix:///d", "agent_state_path": "/s", "agent_max_containers": "8"}
    ask({}, variables, phase="survey", images=[], paths=[])
    (_phase, options, _seconds) = requests[0]
    assert (options["docker_host"], options["state_path"]) == ("unix:///d", "/s")
    assert options["settings"]["max_containers"] == 8


@pytest.mark.parametrize(
    ("given", "names"),
    [(["GPU-a"], ["GPU-a"]), ("GPU-a,/dev/null", ["GPU-a", "/dev/null"]), ('["GPU-a"]', ["GPU-a"]), ([0], ["0"])],
    ids=["a list", "a text", "a text of an INI inventory", "a number, which the agent refuses"],
)
def test_reserved_devices_are_names(ask: Any, requests: Asked, given: object, names: list[str]) -> None:
    ask({}, {"agent_reserved_devices": given}, phase="survey")
    assert requests[0][1]["settings"]["reserved_devices"] == names


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("agent_reserved_devices", {"id": "GPU-a"}, "agent_*: argument 'reserved_devices' is of type "),
    ],
)
def test_an_option_of_another_type_or_that_is_gone_is_the_result_of_the_survey(
    ask: Any, requests: Asked, variable: str, value: object, problem: str
) -> None:
    assert ask({}, {variable: value}, phase="survey")["error"].startswith(problem)
    assert requests == []


def test_an_agent_with_an_option_that_was_removed_gets_no_new_sessions_and_all_else_works(ask: Any) -> None:
    left: dict[str, Any] = {"agent_registry_mirrors": [], "session_facts_max_age": 0}
    told = {
        "schedulable": False,
        "obstacles": ["its engine hangs.", *describe_removed_options(["agent_registry_mirrors"])],
    }
    agent = {"schedulable": True, "obstacles": ["its engine hangs."]}
    assert ask({"agent": agent}, left, phase="survey")["agent"] == told
    assert ask({"agent": agent}, {"agent_labels": []}, phase="survey")["agent"] == agent
    none_or_damaged: list[Any] = [None, {}, {"obstacles": 7}]
    for other in none_or_damaged:
        assert ask({"agent": other}, left, phase="survey")["agent"] == other
    for phase in {*SECONDS} - {"survey"}:
        assert ask({"answer": 7}, left, phase=phase)["answer"] == 7


def test_change_on_the_agent_changes_the_task(ask: Any) -> None:
    assert ask({"changed": True, "failures": {}}, phase="reap")["changed"] is True


def test_warnings_of_a_survey_name_the_agent(ask: Any) -> None:
    reply: dict[str, Any] = {"agent": {}, "error": None, "warnings": ["container web: of no session."]}
    result = ask(reply, {"inventory_hostname": "agent1"}, phase="survey", others=True)
    assert result["warnings"] == ["agent1: container web: of no session."]
    assert "warnings" not in ask({**reply, "warnings": []}, {"inventory_hostname": "agent1"}, phase="survey")


# ---- what goes wrong


NOTHING: dict[str, dict[str, Any]] = {"survey": {"agent": None}, "verify": {"parts": []}}


@pytest.mark.parametrize("phase", sorted(NOTHING))
def test_failed_survey_is_a_result(ask: Any, phase: str) -> None:
    result = ask(AnsibleActionFail("start docker."), phase=phase)
    assert {**NOTHING[phase], "error": "start docker.", "changed": False}.items() <= result.items()
    assert "failed" not in result


@pytest.mark.parametrize("phase", sorted({*SECONDS} - {*NOTHING}))
def test_failed_phase_fails_the_task(ask: Any, phase: str) -> None:
    with pytest.raises(AnsibleActionFail, match=r"^start docker\.$"):
        ask(AnsibleActionFail("start docker."), phase=phase)


@pytest.mark.parametrize("phase", sorted(SECONDS))
def test_unreachable_agent_is_unreachable(ask: Any, phase: str) -> None:
    with pytest.raises(AnsibleConnectionFailure):
        ask(AnsibleConnectionFailure("no route to host"), phase=phase)


def test_invalid_agent_variable_is_a_result_of_the_survey(ask: Any, requests: Asked) -> None:
    result = ask({}, {"agent_max_containers": "many"}, phase="survey")
    assert result["agent"] is None
    assert result["error"].startswith("agent_*: ")
    assert "max_containers" in result["error"]
    assert requests == []


def test_reap_failure_of_one_session_is_a_warning(ask: Any) -> None:
    failures = {SESSION_ID: "the engine refused: no", OTHER_ID: "it is gone"}
    result = ask({"changed": True, "failures": failures}, phase="reap")
    assert result["warnings"] == [f"{SESSION_ID}: the engine refused: no", f"{OTHER_ID}: it is gone"]
    assert (result["changed"], result["failures"]) == (True, failures)


def test_failed_removal_fails_the_task(ask: Any) -> None:
    sessions = {SESSION_ID: {"failed": "the engine refused: no."}, OTHER_ID: {}}
    with pytest.raises(AnsibleActionFail, match=r"^the engine refused: no\.$"):
        ask({"changed": True, "sessions": sessions}, phase="remove")
    assert ask({"changed": True, "sessions": {OTHER_ID: {}}}, phase="remove")["changed"] is True


def test_lost_output_is_a_warning(ask: Any) -> None:
    lost = {SESSION_ID: {"lost_output": ["main1: no room"]}}
    for reply in ({"sessions": lost}, {"ends": lost}):
        assert ask(reply, phase="remove")["warnings"] == [f"{SESSION_ID}: output was lost: main1: no room"]
