"""The action session_step: requests of sessions come from session_request or from the plan of the queue."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.action.session_step import ActionModule
from ansible_collections.backendai.cluster.plugins.module_utils._model.environment import environment_text
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import Decision
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import start_arguments
from tests.unit.builders import SESSION_ID, plan, spec
from tests.unit.plugins.action.conftest import Run
from tests.unit.rendering import OPTIONS_OF_RUN


class Sent(ActionModule):
    """The action without its connection to an agent and its templates."""

    def call(self, phase: str, options: Any, *_how: Any) -> dict[str, Any]:
        arguments = options["sessions"]
        return {"phase": phase, "asked": arguments, "sessions": {session["id"]: {} for session in arguments}}

    def _render(self, kind: str, template_variables: Any, _variables: Any) -> str:
        return environment_text(template_variables["environment"]) if kind == "environment" else kind


def result_with(token: str, name: str = "train-llm") -> dict[str, Any]:
    """Return a result with one request that has this token in its environment."""
    return {"specs": {name: dataclasses.asdict(spec(name=name, env={"TOKEN": token}))}}


@pytest.mark.parametrize(
    ("request_result", "queue_plan", "token"),
    [
        (result_with("asked"), None, "asked"),
        (result_with("asked"), {"skipped": True}, "asked"),
        (result_with("asked"), result_with("queued", "session-2"), "asked"),
        ({"specs": {}}, result_with("queued"), "queued"),
        (result_with("asked"), result_with("queued"), "queued"),
    ],
    ids=["asked for", "no queue", "another one queued", "queued since the run began", "asked for and queued"],
)
def test_request_of_a_session_is_found(
    run: Run, request_result: dict[str, Any], queue_plan: dict[str, Any] | None, token: str
) -> None:
    decision = Decision(plan({"agent1": 1}), False, {}, {})
    start = start_arguments(decision, [], never_completed=False)
    localhost = {"__session_request": {**request_result, "run": OPTIONS_OF_RUN}, "__session_queue_plan": queue_plan}
    variables = {"inventory_hostname": "agent1", "hostvars": {"localhost": localhost, "agent1": {}}}
    sent = run(Sent, {"step": "claim", "starts": [start]}, variables)
    (arguments,) = sent["asked"]
    assert (arguments["id"], arguments["contents"]["environments"]["main1"]["TOKEN"]) == (SESSION_ID, token)
