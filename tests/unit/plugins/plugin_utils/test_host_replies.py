"""Replies of hosts: one that lacks a field, or has another type in it, is refused with the name of the field."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.plain_data import DataError
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_replies import NO_REASON, check_reply
from tests.unit.builders import plan

PLAN = plan({"agent1": 1}).to_dict()
PAIR = {"from": "main1", "to": "main1", "name": True, "tcp": None, "frame": None, "ssh": True}
PART = {"plan": PLAN, "committed": True, "expired": False, "containers": {}, "drift": [], "pairs": [PAIR]}
LOGGED = {"id": "x", "batch": False, "containers": {}, "logs": {"main1": 1}}
LINK: dict[str, Any] = {"id": "x", "name": "a", "ssh": None, "apps": []}
TOKEN = {"session": {"id": "x", "name": "a"}, "links": LINK}
LISTED = {**LOGGED, "logs": {"main1": {"log": ["a"], "apps": {}, "error": None}}}


@pytest.mark.parametrize(
    ("phase", "reply", "problem"),
    [
        ("survey", {"agent": None}, "error is missing"),
        ("survey", {"agent": [], "error": None}, "agent must be a mapping"),
        ("survey", {"agent": None, "error": None, "warnings": [1]}, "warnings[0] must be text"),
        ("start", {}, "sessions is missing"),
        ("start", {"sessions": {"x": {"warnings": "a"}}}, "sessions.x.warnings must be a list"),
        ("start", {"sessions": {"x": {"failed": 7}}}, "sessions.x.failed must be text"),
        ("start", {"sessions": {"x": {"containers": {"main1": {}}}}}, "sessions.x.containers.main1.status is missing"),
        ("pull", {"images": {"a": {"id": "b"}}, "under_way": []}, "images.a.digest is missing"),
        ("pull", {"images": {}, "under_way": [], "size": "1"}, "size must be a whole number"),
        ("prune", {"removed": [{"name": "a"}], "kept": []}, "removed[0].size is missing"),
        ("token", {**TOKEN, "expires_at": 1 << 40}, "the data is invalid, because expires_at is not in the years"),
        ("wait", {"ended": "yes", "exit_code": 0}, "ended must be true or false"),
        ("verify", {"parts": [{**PART, "pairs": [{"to": "x"}]}], "error": None}, "parts[0].pairs[0].source must be"),
        ("verify", {"parts": 1, "error": None}, "parts must be a list"),
        ("logs", {"parts": [LOGGED], "error": None}, "parts[0].logs.main1 must be a mapping"),
        ("logs", {"parts": [LISTED], "error": None}, "parts[0].logs.main1.log must be text"),
        ("start", {"sessions": {"x": {"starting": 1}}}, "sessions.x.starting must be true or false"),
        ("start", {"sessions": {"x": {"printed": "a"}}}, "sessions.x.printed must be a list"),
        ("start", {"sessions": {}, "diff": {"a": "b"}}, "diff.before is missing"),
        ("wait", {"ended": True, "exit_code": 0, "diff": {"before": "", "after": 7}}, "diff.after must be text"),
        ("targets", {"diff": {"before": "", "after": "", "after_header": "x"}}, "diff.after_header is not known"),
        ("firewall_traffic", {"mode": "", "traffic": [], "unlisted": 0, "storage": [1]}, "storage[0] must be"),
        ("routes", {"links": []}, "unrouted is missing"),
        ("routes", {"links": [], "unrouted": "x"}, "unrouted must be a list"),
        ("routes", {"links": [{"id": "x"}]}, "links[0].name is missing"),
        ("routes", {"links": [], "warnings": "none"}, "warnings must be a list"),
        ("targets", {"changed": 1}, "changed must be true or false"),
    ],
)
def test_a_reply_of_another_shape_is_refused(phase: str, reply: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError) as refused:
        check_reply(phase, reply)
    assert str(refused.value).startswith(f"the reply of this host is damaged: {problem}")


def test_a_plan_that_cannot_be_is_refused() -> None:
    check_reply("verify", {"parts": [PART], "error": None})
    with pytest.raises(DataError, match="its id is not that of a session"):
        check_reply("verify", {"parts": [{**PART, "plan": {**PLAN, "id": "x"}}], "error": None})


def test_fields_of_later_releases_and_of_other_phases_are_ignored() -> None:
    known = {"ended": True, "exit_code": None}
    assert check_reply("wait", {**known, "signal": 9, "sessions": [1], "error": {}}) == known
    check_reply("verify", {"parts": [{**PART, "kernel": "6.1"}], "error": None})


def test_a_reply_to_a_phase_that_is_not_listed_stays_as_it_is() -> None:
    assert check_reply("targets", {"sessions": [1], "changed": False}) == {"sessions": [1], "changed": False}


@pytest.mark.parametrize("text", [None, "", " \n", "."])
def test_a_failure_without_a_text_says_so(text: str | None) -> None:
    sessions = {"a": {"failed": text}, "b": {"failed": "no room."}, "c": {}}
    for phase in ("start", "remove"):
        checked = check_reply(phase, {"sessions": sessions})
        assert checked == {"sessions": {**sessions, "a": {"failed": NO_REASON}}}
    if text is not None:
        assert check_reply("reap", {"failures": {"a": text}}) == {"failures": {"a": NO_REASON}}
