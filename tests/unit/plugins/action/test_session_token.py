"""The action session_token: its file, links on the screen, and the gateway that signs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.action import session_token
from ansible_collections.backendai.cluster.plugins.action.session_token import SECONDS
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import Answer, Failure
from tests.unit.builders import SESSION_ID
from tests.unit.plugins.action.asked_hosts import GONE, Asked, Variables
from tests.unit.plugins.action.conftest import Run
from tests.unit.plugins.action.looks import LookedAt

LINKS = {
    "id": "i",
    "name": "train-llm",
    "ssh": None,
    "apps": [
        {"name": "db", "protocol": "tcp", "url": None},
        {"name": "web", "protocol": "http", "url": "https://door/s/train-llm/web/"},
        {"name": "runs", "protocol": "http", "url": "https://door/s/train-llm/runs/list?all=1#top"},
    ],
}
KNOWN = {"session": {"id": "i", "name": "train-llm"}, "links": LINKS, "expires_at": 1772337597}
TOKEN = "head.claims.signature"
SIGNED = {"changed": True, **KNOWN, "token": TOKEN}


class ActionModule(LookedAt, session_token.ActionModule):
    """The action, whose gateways answer at once."""

    names = ("gateway1", "gateway2")


Issue = Callable[..., dict[str, Any]]


@pytest.fixture
def issue(run: Run, tmp_path: Path) -> Iterator[Issue]:
    """Return what runs the action with these answers of gateways."""

    def issuing(
        args: dict[str, Any] | None = None,
        variables: dict[str, Any] | None = None,
        *,
        check_mode: bool = False,
        **answers: Answer,
    ) -> dict[str, Any]:
        def answer(asked: Asked) -> Answer:
            return answers.get(asked.host, SIGNED)

        ActionModule.answer = staticmethod(answer)
        names = list(ActionModule.names)
        known = {"hostvars": Variables({name: {} for name in names}), "groups": {"gateways": names}}
        given = {"name": "train-llm", "path": str(tmp_path / "my.token"), **(args or {})}
        return run(ActionModule, given, {**known, **(variables or {})}, check_mode=check_mode)

    yield issuing
    ActionModule.hidden = ()


def asked() -> list[Asked]:
    return ActionModule.hosts.asked


def test_token_is_in_its_file_and_not_in_the_result(issue: Issue, tmp_path: Path, printed: list[str]) -> None:
    path = tmp_path / "my.token"
    path.write_text("before")
    path.chmod(0o644)
    result = issue({"ttl": "60"})
    assert path.read_text() == f"{TOKEN}\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert TOKEN not in str(result)
    assert {**KNOWN, "path": str(path), "changed": True}.items() <= result.items()
    assert printed == []
    assert asked() == [Asked("token", "gateway1", {"name": "train-llm", "session_id": "", "ttl": 60}, SECONDS)]


def test_links_are_shown_to_people(issue: Issue, tmp_path: Path, printed: list[str]) -> None:
    path = tmp_path / "my.token"
    issue({"format": "text"})
    assert printed[0] == f"The token for session train-llm is in {path}. It is valid until 2026-03-01 03:59:57 UTC."
    assert [line.split() for line in printed[2:4]] == [
        ["web", f"https://door/s/train-llm/web/?token={TOKEN}"],
        ["runs", f"https://door/s/train-llm/runs/list?all=1&token={TOKEN}#top"],
    ]
    assert printed[-1].endswith(f"cat '{path}') https://door/s/train-llm/web/")
    assert TOKEN not in printed[-1]


def test_what_a_gateway_says_stays_on_its_line(issue: Issue, printed: list[str]) -> None:
    app = {"name": "web\nsaved", "url": "https://door/\nsaved", "protocol": "http"}
    issue({"format": "text"}, gateway1={**SIGNED, "links": {**LINKS, "apps": [app]}})
    assert len(printed) > 3
    assert not [line for line in printed if line.startswith("saved")]


def test_a_json_file_has_the_links_and_the_end_of_the_token(issue: Issue, tmp_path: Path, printed: list[str]) -> None:
    path = tmp_path / "token.json"
    issue({"path": str(path), "format": "text"})
    assert json.loads(path.read_text()) == {"token": TOKEN, **KNOWN}
    assert path.stat().st_mode & 0o777 == 0o600
    assert not [line for line in printed if "curl" in line]


def test_what_is_not_given_is_a_variable_or_in_the_file_of_a_user(issue: Issue, tmp_path: Path) -> None:
    given, path = tmp_path / "request.json", tmp_path / "other.token"
    request = {"session_id": SESSION_ID, "session_token_ttl": 60}
    given.write_text(json.dumps(request))
    none = {"name": None, "path": None}
    issue(none, {"session_request_path": str(given), "session_token_path": str(path)})
    assert (asked()[0].options, path.exists()) == ({"name": "", "session_id": SESSION_ID, "ttl": 60}, True)
    given.write_text(json.dumps({**request, "session_token_path": "x"}))
    refused = issue(none, {"session_request_path": str(given)})
    assert refused["refused"] is True
    assert refused["msg"].startswith("session_token_path is an option of operators")


def test_check_mode_writes_and_shows_nothing(issue: Issue, tmp_path: Path, printed: list[str]) -> None:
    unsigned = {"changed": True, **KNOWN}
    result = issue({"format": "text"}, check_mode=True, gateway1=unsigned)
    assert (result["changed"], list(tmp_path.glob("*token*")), printed) == (True, [], [])


# ---- gateways


def test_the_first_gateway_that_can_be_reached_signs(issue: Issue, tmp_path: Path) -> None:
    issue(gateway1=GONE)
    assert ([each.host for each in asked()], (tmp_path / "my.token").exists()) == (["gateway1", "gateway2"], True)
    ActionModule.hidden = ("gateway1",)
    issue()
    assert [each.host for each in asked()] == ["gateway2"]


AWAY = "{name} is unavailable: no route to host"


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ({"gateway1": Failure("there is no session.")}, "gateway1: there is no session."),
        (
            dict.fromkeys(["gateway1", "gateway2"], GONE),
            f"no gateway can sign a token: {AWAY.format(name='gateway1')}; {AWAY.format(name='gateway2')}.",
        ),
    ],
)
def test_failed_request_does_not_change_the_file(
    issue: Issue, tmp_path: Path, printed: list[str], answers: dict[str, Answer], sentence: str
) -> None:
    path = tmp_path / "my.token"
    path.write_text("before")
    with pytest.raises(AnsibleActionFail) as failed:
        issue({"format": "text"}, **answers)
    assert (str(failed.value), path.read_text(), printed) == (sentence, "before", [])


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"groups": {}}, "gateway_group: 'gateways' has no hosts; a token is signed by a gateway."),
        ({"gateway_group": "nobody"}, "gateway_group: 'nobody' has no hosts; a token is signed by a gateway."),
    ],
)
def test_without_a_gateway_nothing_is_signed(issue: Issue, variables: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AnsibleActionFail) as failed:
        issue({}, variables)
    assert str(failed.value) == sentence


def test_gateways_that_a_limit_hides_are_not_asked(issue: Issue) -> None:
    ActionModule.hidden = ActionModule.names
    with pytest.raises(AnsibleActionFail, match=r"^gateway_group: 'gateways' has no hosts within --limit; a token is"):
        issue()


# ---- what is refused


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({"path": "."}, "path: '.' must be a file, not a folder."),
        ({"path": "nowhere/token"}, "path: 'nowhere/token' must be in an existing, writable folder."),
        ({"path": None}, "session_token_path is required."),
        ({"ttl": 1}, "ttl: 1 must be a time from 60 to 2592000 seconds, such as 90m, 12h, 7d."),
        ({"name": None}, "session_name or session_id is required."),
        ({"id": "x"}, "id: 'x' must be the id of a session"),
    ],
)
def test_a_request_that_is_not_valid_is_refused_before_a_gateway_is_asked(
    issue: Issue, args: dict[str, Any], sentence: str
) -> None:
    issue()
    before = ActionModule.hosts
    refused = issue(args)
    assert (refused["failed"], refused["refused"], refused["changed"]) == (True, True, False)
    assert refused["msg"].startswith(sentence)
    assert ActionModule.hosts is before


def test_what_cannot_be_meant_is_an_error(issue: Issue) -> None:
    with pytest.raises(AnsibleActionFail, match=r"state\. Supported parameters include"):
        issue({"state": "issued"})
    with pytest.raises(AnsibleActionFail, match="set run_once: true, or move it"):
        issue({}, {"ansible_play_hosts_all": ["gateway1", "gateway2"]})
