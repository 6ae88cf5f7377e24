"""Public actions: validation of options, and the host's reply as result."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action import agent_program, gateway_routes
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_action import HostAction
from tests.unit.gateway import ONE, ROUTE
from tests.unit.plugins.action.conftest import Run

Asked = list[tuple[str, dict[str, Any], int]]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Return the requests to hosts; each returns nothing."""
    calls: Asked = []

    def call(_action: HostAction, phase: str, options: Any, _variables: Any, seconds: int) -> dict[str, Any]:
        calls.append((phase, options, seconds))
        return {}

    monkeypatch.setattr(HostAction, "call", call)
    return calls


def refusal(run: Run, action: Any, **args: Any) -> str:
    with pytest.raises(AnsibleActionFail) as refused:
        run(action, args, {})
    sentence = str(refused.value)
    assert (sentence[-1], sentence.count("\n")) == (".", 0)
    return sentence


# ---- agents


@pytest.mark.parametrize("changes", [True, False])
def test_agent_program_changes_when_units_run_another_one(
    run: Run, monkeypatch: pytest.MonkeyPatch, changes: bool
) -> None:
    monkeypatch.setattr(HostAction, "install", lambda _action, _variables: changes)
    assert run(agent_program.ActionModule, {}, {})["changed"] is changes


# ---- gateways


def test_gateway_routes_have_defaults(run: Run, requests: Asked) -> None:
    app = {"name": "web", "address": "::1", "port": "30001"}
    run(gateway_routes.ActionModule, {"routes": [{"id": ONE, "name": "train-llm", "apps": [app]}]}, {})
    ((phase, options, seconds),) = requests
    assert (phase, seconds) == ("routes", gateway_routes.SECONDS)
    typed = {**app, "port": 30001, "protocol": "http", "path": "strip", "start": "/"}
    route = {"id": ONE, "name": "train-llm", "apps": [typed], "ssh": None}
    assert options == {
        "state_path": "/var/lib/backendai-gateway",
        "routes": [route],
        "ended": [],
        "vacated": [],
        "purge": False,
    }


def test_gateway_routes_sends_ended_and_purge(run: Run, requests: Asked) -> None:
    vacated = [{"id": ONE, "address": "192.0.2.11"}]
    run(gateway_routes.ActionModule, {"ended": [ONE], "vacated": vacated, "purge": "yes", "state_path": "/x"}, {})
    assert requests[0][1] == {
        "state_path": "/x",
        "routes": [],
        "ended": [ONE],
        "vacated": vacated,
        "purge": True,
    }


@pytest.mark.parametrize(
    ("route", "part"),
    [
        ({"name": "train-llm"}, "missing required arguments: id found in routes."),
        ({**ROUTE, "ssh": {"port": 1}}, "missing required arguments: address found in routes -> ssh."),
        ({**ROUTE, "apps": [{**ROUTE["apps"][0], "protocol": "udp"}]}, "value of protocol must be one of: "),
        ({**ROUTE, "extra": 1}, "routes.extra. Supported parameters include: "),
    ],
)
def test_gateway_routes_rejects_invalid_options(run: Run, requests: Asked, route: dict[str, Any], part: str) -> None:
    assert part in refusal(run, gateway_routes.ActionModule, routes=[route])
    assert requests == []


def test_warnings_of_a_gateway_are_returned(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostAction, "call", lambda *_asked: {"changed": True, "warnings": ["HAProxy does not run."]})
    assert run(gateway_routes.ActionModule, {}, {})["warnings"] == ["HAProxy does not run."]
