"""The action agent_cordon: what it sends, what it shows, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action import agent_cordon
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_action import HostAction
from tests.unit.plugins.action.conftest import Run

AGENT1 = {"inventory_hostname": "agent1"}
REPLY = {"changed": True, "cordoned_before": False, "description": "cordoned by carol (disk)", "sessions": ["a", "b"]}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the options of the requests to the host."""
    requests: list[dict[str, Any]] = []

    def call(_action: HostAction, phase: str, options: dict[str, Any], *_else: object) -> dict[str, Any]:
        requests.append({"phase": phase, **options})
        return dict(REPLY) if options["state"] == "present" else {**REPLY, "description": ""}

    monkeypatch.setattr(HostAction, "call", call)
    monkeypatch.setattr(agent_cordon.getpass, "getuser", lambda: "carol")
    return requests


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (
            {"reason": "disk"},
            "agent1 takes no new sessions: cordoned by carol (disk); still there: a, b.",
        ),
        ({"state": "absent"}, "agent1 takes new sessions."),
    ],
)
def test_the_agent_is_told_who_decided_and_the_operator_what_is_true_now(
    run: Run, sent: list[dict[str, Any]], printed: list[str], args: dict[str, Any], line: str
) -> None:
    result = run(agent_cordon.ActionModule, args, {**AGENT1, "agent_state_path": "/srv/state"})
    assert result["changed"]
    (request,) = sent
    assert (request["phase"], request["by"], request["state_path"]) == ("cordon", "carol", "/srv/state")
    assert (request["reason"], request["sessions_end_after"]) == (args.get("reason", ""), None)
    assert printed == [line]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({"sessions_end_after": -1}, "sessions_end_after: -1 must be 0 to 31622400 seconds."),
        ({"sessions_end_after": 10**9}, "sessions_end_after: 1000000000 must be 0 to 31622400 seconds."),
        ({"reason": "a\nb"}, "reason: it must be one line of at most 200 characters."),
        ({"reason": "a" * 201}, "reason: it must be one line of at most 200 characters."),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_host_is_asked(
    run: Run, sent: list[dict[str, Any]], args: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(AnsibleActionFail) as refused:
        run(agent_cordon.ActionModule, args, AGENT1)
    assert (str(refused.value), sent) == (sentence, [])
