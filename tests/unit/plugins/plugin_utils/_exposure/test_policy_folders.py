"""The check of folders of policies: what managers and agents are asked, and what comes of their answers."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.policy_folders import (
    FolderHosts,
    FolderResults,
    check_folders,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import Answer, Failure
from tests.unit.plugins.action.asked_hosts import GONE, Asked, AskedHosts

HOME = {"source": "/srv/home/{user}", "read_only": False}
DATA = {"source": "/srv/data", "read_only": True}
FINE: dict[str, Any] = {"users": [], "problems": [], "unprotected": []}


class Site:
    """Two agents and managers. ``policies`` and ``looks`` are their answers, where these are not the usual ones."""

    agents = ("agent1", "agent2")

    def __init__(self, *managers: str, **variables: dict[str, Any]) -> None:
        self.managers = managers
        self.present: tuple[str, ...] = managers
        self.policies: dict[str, Answer] = {}
        self.looks: dict[str, Answer] = {}
        self.hidden: tuple[str, ...] = ()
        hosts = {name: variables.get(name, {}) for name in (*self.agents, *managers)}
        self.of_agents, self.of_managers = AskedHosts(hosts, self._answer), AskedHosts(hosts, self._answer)

    def _answer(self, request: Asked) -> Answer:
        if request.phase == "policy":
            return self.policies.get(request.host, {"folders": [HOME, DATA]})
        return self.looks.get(request.host, FINE)

    def check(self) -> FolderResults:
        def shown(names: Any) -> list[str]:
            return [name for name in names if name not in self.hidden]

        hosts = FolderHosts(self.agents, self.managers, self.present, self.of_agents, self.of_managers, shown)
        return check_folders(hosts)

    @property
    def looked(self) -> list[Asked]:
        """The requests to look at folders, in order."""
        asked = [*self.of_agents.asked, *self.of_managers.asked]
        return [request for request in asked if request.phase == "policy_folders" and request.options["folders"]]


def test_the_folders_of_all_policies_are_checked_for_all_who_have_sessions() -> None:
    site = Site("manager1", "manager2", agent1={"agent_mount_roots": "/srv,/mnt"})
    site.policies["manager2"] = {"folders": [DATA]}
    site.looks |= {"agent1": {**FINE, "users": ["bob", "alice"]}, "agent2": {**FINE, "users": ["bob"]}}
    assert site.check() == FolderResults(nothing="")
    asked = {"folders": [DATA, HOME], "users": ["alice", "bob"]}
    assert [(request.host, request.options) for request in site.looked] == [
        ("agent1", {**asked, "kind": "agent", "mount_roots": ["/srv", "/mnt"]}),
        ("agent2", {**asked, "kind": "agent", "mount_roots": ["/"]}),
        ("manager1", {**asked, "kind": "manager"}),
        ("manager2", {**asked, "kind": "manager"}),
    ]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Failure("/etc/backendai/policy.yml: images is required."), "/etc/backendai/policy.yml: images is required"),
        (GONE, "no route to host"),
        ({"folders": [{"source": 5, "read_only": False}]}, "its reply is damaged: folders"),
        ({"folders": 7}, "its reply is damaged: folders must be a list"),
    ],
)
def test_a_policy_that_is_not_known_is_said(answer: Answer, reason: str) -> None:
    site = Site("manager1")
    site.policies["manager1"] = answer
    found = site.check()
    assert found.nothing == "no policy has folders"
    assert found.unread[0].startswith(f"the policy of manager1 is not known: {reason}")


def test_hosts_that_a_limit_hides_are_said_and_not_asked() -> None:
    site = Site("manager1", "manager2")
    site.hidden = ("manager2", "agent2")
    assert site.check().unread == (
        "the policy of manager2 is not known: hidden by --limit",
        "who has sessions on agent2 is not known: hidden by --limit",
        "the folders on agent2 were not checked: hidden by --limit",
        "the folders on manager2 were not checked: hidden by --limit",
    )
    assert {request.host for request in site.looked} == {"agent1", "manager1"}


def test_a_manager_that_is_given_back_has_no_policy_and_is_looked_at_nevertheless() -> None:
    site = Site("manager1", "manager2")
    site.present = ("manager2",)
    assert site.check().unread == ()
    assert [request.host for request in site.of_managers.asked if request.phase == "policy"] == ["manager2"]
    assert [request.host for request in site.looked] == ["agent1", "agent2", "manager1", "manager2"]


def test_what_hosts_find_is_named_by_host() -> None:
    site = Site("manager1")
    site.looks |= {
        "agent1": {**FINE, "problems": ["/a is a link"]},
        "agent2": GONE,
        "manager1": {**FINE, "unprotected": ["/a is mounted without nosuid"]},
    }
    assert site.check() == FolderResults(
        ("agent1: /a is a link",),
        ("manager1: /a is mounted without nosuid",),
        (
            "who has sessions on agent2 is not known: no route to host",
            "the folders on agent2 were not checked: no route to host",
        ),
        nothing="",
    )


def test_a_host_that_is_agent_and_manager_is_looked_at_once_as_an_agent() -> None:
    site = Site("agent1")
    site.check()
    assert [(request.host, request.options["kind"]) for request in site.looked] == [
        ("agent1", "agent"),
        ("agent2", "agent"),
    ]


@pytest.mark.parametrize(
    ("managers", "nothing"), [((), "there are no managers"), (("manager1",), "no policy has folders")]
)
def test_without_folders_nothing_is_looked_at(managers: tuple[str, ...], nothing: str) -> None:
    site = Site(*managers)
    site.policies["manager1"] = {"folders": []}
    assert (site.check(), site.looked) == (FolderResults(nothing=nothing), [])
