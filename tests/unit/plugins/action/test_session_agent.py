"""The action session_agent: options of the survey, and handling of failures."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from ansible_collections.backendai.cluster.plugins.action.session_agent import SECONDS, ActionModule
from ansible_collections.backendai.cluster.plugins.module_utils._module import CAPACITY_OPTIONS
from ansible_collections.backendai.cluster.plugins.module_utils._program.main import PHASES
from ansible_collections.backendai.cluster.plugins.plugin_utils.removed_options import describe_removed_options
from tests.unit.builders import IMAGE
from tests.unit.plugins.action.conftest import Run

AGENT = {"docker_host": "unix:///var/run/docker.sock", "state_path": "/var/lib/backendai"}

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


def test_an_agent_is_surveyed_with_the_options_of_the_task(ask: Any, requests: Asked) -> None:
    result = ask({"agent": {}, "error": None}, phase="survey", images=[IMAGE])
    settings = {name: option["default"] for name, option in CAPACITY_OPTIONS.items()}
    assert requests == [("survey", {"images": [IMAGE], **AGENT, "settings": settings}, SECONDS)]
    assert (result["agent"], result["error"], result["changed"], "survey" in PHASES) == ({}, None, False, True)


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


def test_warnings_of_a_survey_name_the_agent(ask: Any) -> None:
    reply: dict[str, Any] = {"agent": {}, "error": None, "warnings": ["container web: of no session."]}
    result = ask(reply, {"inventory_hostname": "agent1"}, phase="survey", others=True)
    assert result["warnings"] == ["agent1: container web: of no session."]
    assert "warnings" not in ask({**reply, "warnings": []}, {"inventory_hostname": "agent1"}, phase="survey")


# ---- what goes wrong


def test_failed_survey_is_a_result(ask: Any) -> None:
    result = ask(AnsibleActionFail("start docker."), phase="survey")
    assert {"agent": None, "error": "start docker.", "changed": False}.items() <= result.items()
    assert "failed" not in result


def test_unreachable_agent_is_unreachable(ask: Any) -> None:
    with pytest.raises(AnsibleConnectionFailure):
        ask(AnsibleConnectionFailure("no route to host"), phase="survey")


def test_invalid_agent_variable_is_a_result_of_the_survey(ask: Any, requests: Asked) -> None:
    result = ask({}, {"agent_max_containers": "many"}, phase="survey")
    assert result["agent"] is None
    assert result["error"].startswith("agent_*: ")
    assert "max_containers" in result["error"]
    assert requests == []
