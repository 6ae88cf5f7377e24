"""What managers, agents and the check say about the folders of policies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.plain_data import to_plain
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.policy_folders import (
    FolderPlan,
    FolderResults,
    collect_folder_results,
    plan_folder_checks,
    read_plan,
)

HOME = {"source": "/srv/home/{user}", "read_only": False}
DATA = {"source": "/srv/data", "read_only": True}


def policy(*folders: dict[str, Any]) -> dict[str, Any]:
    return {"__policy_folders_of": {"rc": 0, "stdout": json.dumps(folders), "changed": False}}


def users(*names: str) -> dict[str, Any]:
    return {"__policy_users": {"users": [*names], "problems": [], "unprotected": [], "changed": False}}


def found(problems: tuple[str, ...] = (), unprotected: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"__policy_folders": {"users": [], "problems": [*problems], "unprotected": [*unprotected]}}


def planned(managers: dict[str, Any], agents: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(plan_folder_checks(managers, agents, {**managers, **agents}))
    return plain


def test_the_folders_of_all_policies_are_checked_for_all_who_have_sessions() -> None:
    managers = {"manager1": policy(HOME, DATA), "manager2": policy(DATA)}
    assert planned(managers, {"agent1": users("bob", "alice"), "agent2": users("bob")}) == {
        "folders": [DATA, HOME],
        "users": ["alice", "bob"],
        "unread": [],
    }


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"rc": 2, "stderr": "/etc/backendai/policy.yml: images is required.\n"}, "policy.yml: images is required."),
        ({"unreachable": True, "msg": "no route to host"}, "no route to host"),
        ({"rc": 0, "stdout": "[{"}, "Expecting"),
        ({"rc": 0, "stdout": '[{"source": 5, "read_only": false}]'}, "source must be"),
        ({"rc": 0, "stdout": "7"}, "not iterable"),
        ({}, "hidden by --limit"),
    ],
)
def test_a_policy_that_is_not_known_is_said(result: dict[str, Any], reason: str) -> None:
    (unread,) = planned({"manager1": {"__policy_folders_of": result}}, {})["unread"]
    assert unread.startswith("the policy of manager1 is not known: ")
    assert reason in unread


def test_an_agent_that_does_not_answer_is_said_and_a_manager_that_is_removed_is_not() -> None:
    away = {"agent1": {"__policy_users": {"unreachable": True, "msg": "no route"}}}
    removed = {"manager1": {"__policy_folders_of": {"skipped": True}}}
    assert planned(removed, away)["unread"] == ["who has sessions on agent1 is not known: no route"]


def test_what_hosts_find_is_named_by_host() -> None:
    hosts = {"agent1": found(("/a is a link",)), "agent2": {}, "manager1": found((), ("/a is mounted without nosuid",))}
    plan = read_plan({"folders": [DATA], "users": [], "unread": ["x"], "changed": False})
    assert collect_folder_results(plan, ["manager1"], ["agent1", "agent2"], hosts) == FolderResults(
        ("agent1: /a is a link",),
        ("manager1: /a is mounted without nosuid",),
        ("x", "the folders on agent2 were not checked: hidden by --limit"),
        nothing="",
    )


@pytest.mark.parametrize(
    ("managers", "nothing"), [([], "there are no managers"), (["manager1"], "no policy has folders")]
)
def test_without_folders_nothing_is_checked(managers: list[str], nothing: str) -> None:
    assert collect_folder_results(FolderPlan(), managers, ["agent1"], {}).nothing == nothing
