"""Agents pull the images of a start at the same time, and keep their claims meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_steps import PULL, Start
from ansible_collections.backendai.cluster.plugins.plugin_utils._run import crew
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.crew import AgentCrew
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.outcome import Outcome
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.requests import Requests
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import Answer, Failure
from ansible_collections.backendai.cluster.plugins.plugin_utils.registry_logins import read_registries
from tests.unit.builders import DIGEST, IMAGE, SESSION_ID, image_data, plan
from tests.unit.plugins.action.asked_hosts import GONE, Asked, AskedHosts
from tests.unit.plugins.action.stages import run_options

MADE = plan({"agent1": 1, "agent2": 1})
ASKED = {"session_id": SESSION_ID, "nonce": "n", "seconds": 600}
SETTINGS = {"registry_check": [], "allow_registry_login": False}
PLAIN = {**ASKED, "registry": SETTINGS, "logins": {}}
OTHER = "registry:5000/other:1"
READER = {"username": "reader", "password": "hunter2"}
DIFF = {"before": "", "after": "pulled"}
STARTED = {"changed": True, "diff": DIFF, "images": {}, "under_way": ["x"], "started": True, "progress": ""}
WAITS = {"waits": ["agent3"]}
RENEWED = {"changed": False, "images": {}, "under_way": []}


def under_way(progress: str = "") -> dict[str, Any]:
    return {**STARTED, "started": False, "progress": progress}


def pulled(name: str = IMAGE) -> dict[str, Any]:
    return {"changed": False, "diff": {"before": "", "after": ""}, "images": {name: image_data()}, "under_way": []}


class Clock:
    """A clock that advances only by sleeping."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Pulling:
    """Two agents of a session, of which agent2 lacks images; ``replies`` are those of agent2 to named images."""

    def __init__(self) -> None:
        self.variables: dict[str, dict[str, Any]] = {"agent1": {}, "agent2": {}}
        self.replies: Iterator[Answer] = iter(())
        self.asked: list[Asked] = []
        self.lines: list[str] = []
        self.outcome = Outcome(self.lines.append)

    def reply(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        return next(self.replies) if asked.options["name"] else RENEWED

    def pull(
        self,
        replies: list[Answer],
        missing: Mapping[str, list[str]],
        images: Mapping[str, Any] | None = None,
        recorded: Mapping[str, Any] | None = None,
        claim_ttl: int = 600,
        others: Mapping[str, Sequence[str]] | None = None,
    ) -> dict[str, Any]:
        """Pull the images, and return what agents have replied; ``others`` are agents of sessions that lack none."""
        self.replies = iter(replies)
        decided = {"id": SESSION_ID, "nonce": "n", "agents": ["agent1", "agent2"], "plan": MADE.to_dict()}
        decided |= {"missing_images": missing, "images": images or {}, "recorded_images": recorded or {}}
        start = Start({**decided, "public_keys": {"main1": {}}})
        waiting = [
            Start({**start.decided, "id": each, "agents": agents, "missing_images": {}})
            for each, agents in (others or {}).items()
        ]
        requests = Requests(run_options(claim_ttl=claim_ttl), {}, lambda *_what: "", read_registries, several=False)
        hosts = AskedHosts(self.variables, self.reply, self.outcome.take)
        told = AgentCrew(hosts, requests, self.outcome, claim_ttl).pull([start, *waiting])
        assert start.after(PULL, {agent: by_session[SESSION_ID] for agent, by_session in told.items()}).images
        return {agent: dict(by_session[SESSION_ID]) for agent, by_session in told.items()}

    def sent(self, agent: str = "agent2") -> list[dict[str, Any]]:
        return [asked.options for asked in self.asked if asked.host == agent]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(crew, "time", made)
    return made


@pytest.fixture
def pulling(clock: Clock) -> Pulling:
    assert clock.slept == []
    return Pulling()


def test_a_pull_is_polled_until_the_image_is_present(pulling: Pulling, clock: Clock) -> None:
    replies = pulling.pull([STARTED, *[under_way()] * 7, pulled()], {"agent2": [IMAGE]})
    assert clock.slept == [0.5, 0.5, 0.5, 0.5, 1, 2, 5, 5]
    assert replies == {"agent1": {"images": {}}, "agent2": {"images": {IMAGE: image_data()}}}
    assert pulling.outcome.changed
    # A pull that goes on is one change.
    assert [diff["after"] for diff in pulling.outcome.diffs] == ["pulled"]


def test_a_present_image_is_no_change(pulling: Pulling) -> None:
    replies = pulling.pull([pulled()], {"agent2": [IMAGE]})
    assert (replies["agent2"], pulling.outcome.changed) == ({"images": {IMAGE: image_data()}}, False)
    assert [request["name"] for request in pulling.sent()] == [IMAGE]


def test_images_are_pulled_one_after_the_other(pulling: Pulling) -> None:
    replies = pulling.pull([STARTED, pulled(), STARTED, pulled(OTHER)], {"agent2": [IMAGE, OTHER]})
    assert [request["name"] for request in pulling.sent()] == [IMAGE, IMAGE, OTHER, OTHER, ""]
    assert sorted(replies["agent2"]["images"]) == [IMAGE, OTHER]


def test_all_agents_renew_their_claims_while_one_pulls_and_after_the_last_pull(pulling: Pulling, clock: Clock) -> None:
    pulling.pull([STARTED, *[under_way()] * 30, pulled()], {"agent2": [IMAGE]}, claim_ttl=60)
    renewals = pulling.sent("agent1")
    assert all(request == {**PLAIN, "seconds": 60, "name": "", "reference": ""} for request in renewals)
    # At once, each third of the time that a claim lasts, and at the end.
    assert len(renewals) == 2 + (clock.now - 1000) // 20
    assert pulling.sent()[-1]["name"] == ""


def test_agents_of_other_sessions_renew_their_claims_while_one_pulls(pulling: Pulling, clock: Clock) -> None:
    """No session of a pass goes on before all have their images."""
    pulling.variables["agent3"] = {}
    pulling.pull([STARTED, *[under_way()] * 30, pulled()], {"agent2": [IMAGE]}, claim_ttl=60, others=WAITS)
    renewals = pulling.sent("agent3")
    assert {(request["session_id"], request["name"], request["seconds"]) for request in renewals} == {("waits", "", 60)}
    assert len(renewals) == (clock.now - 1000) // 20 > 2


def test_a_short_pull_costs_other_sessions_nothing(pulling: Pulling) -> None:
    pulling.pull([STARTED, under_way(), pulled()], {"agent2": [IMAGE]}, others=WAITS)
    assert pulling.sent("agent3") == []


def test_agents_that_pull_do_so_at_the_same_time(pulling: Pulling) -> None:
    pulling.pull([STARTED, STARTED, pulled(), pulled()], {"agent1": [IMAGE], "agent2": [IMAGE]})
    named = [(asked.host, asked.options["name"]) for asked in pulling.asked]
    assert named == [("agent1", IMAGE), ("agent2", IMAGE)] * 2 + [("agent1", ""), ("agent2", "")]


# ---- what people see


def test_progress_is_shown_when_it_changes(pulling: Pulling) -> None:
    looks = ["", "1.0 of 3.0 MB, 0 of 1 layers", "1.0 of 3.0 MB, 0 of 1 layers", "2.0 of 3.0 MB, 0 of 1 layers"]
    pulling.pull([STARTED, *map(under_way, looks), pulled(OTHER)], {"agent2": [OTHER]})
    assert pulling.lines == [
        "Pull images (agent2): begun",
        "agent2: pulling registry:5000/other:1: 1.0 of 3.0 MB, 0 of 1 layers",
        "agent2: pulling registry:5000/other:1: 2.0 of 3.0 MB, 0 of 1 layers",
        "Pull images (agent2): done",
    ]


# ---- faults


@pytest.mark.parametrize("before", [[], [STARTED, under_way()]], ids=["at once", "later"])
@pytest.mark.parametrize(
    ("fault", "reason"), [(Failure("no."), "no."), (GONE, "it became unreachable")], ids=["failed", "unreachable"]
)
def test_a_pull_that_fails_ends_those_of_its_session(
    pulling: Pulling, before: list[Answer], fault: Failure, reason: str
) -> None:
    replies = pulling.pull([*before, fault], {"agent2": [IMAGE, OTHER]})
    assert replies["agent2"] == {"images": {}, "failed": reason}
    assert pulling.lines[-1] == f"Pull images (agent2): failed: {reason}"


def test_images_that_differ_between_agents_are_not_pulled(pulling: Pulling) -> None:
    images = {"agent1": {IMAGE: image_data(1)}, "agent2": {}, "agent3": {IMAGE: image_data(2)}}
    assert pulling.pull([], {"agent2": [IMAGE]}, images)["agent2"]["failed"] == (
        "session_image: 'lab/python:1' is not the same on all agents: sha256:1… on agent1, sha256:2… on agent3;"
        " remove the outdated one (docker rmi) or specify the image by its digest."
    )
    assert pulling.asked == []


def test_image_that_an_agent_has_replaced_is_not_pulled(pulling: Pulling) -> None:
    recorded = {IMAGE: image_data(1, "docker.io/lab/python")}
    replies = pulling.pull([], {"agent2": [IMAGE]}, {"agent1": {IMAGE: image_data(2)}}, recorded)
    assert (
        "is not the same on all agents: sha256:2… on agent1, sha256:aaaaaaaaaaaa… on this control node's record"
        in replies["agent2"]["failed"]
    )
    assert pulling.asked == []


def test_the_answer_of_one_agent_leads_no_other_agent_to_another_repository(pulling: Pulling) -> None:
    images = {"agent1": {IMAGE: image_data(registry="evil.example.com/miner")}, "agent2": {}}
    assert pulling.pull([], {"agent2": [IMAGE]}, images)["agent2"]["failed"] == (
        f"session_image: agent1 has 'evil.example.com/miner@{DIGEST}' as 'lab/python:1', which is no sha256 digest in"
        " the repository docker.io/lab/python: check agent1, or specify the image by its digest."
    )
    assert not [request for request in pulling.sent() if request["name"]]


# ---- what is pulled, and with which password


def test_an_image_of_another_agent_is_pulled_by_digest(pulling: Pulling) -> None:
    images = {"agent1": {IMAGE: image_data(registry="lab/python")}, "agent2": {}}
    pulling.pull([pulled(), pulled(OTHER)], {"agent2": [IMAGE, OTHER]}, images)
    references = [(request["name"], request["reference"]) for request in pulling.sent()]
    assert references == [(IMAGE, f"lab/python@{DIGEST}"), (OTHER, OTHER)]


def test_an_image_of_the_record_is_pulled(pulling: Pulling) -> None:
    pulling.pull([pulled()], {"agent2": [IMAGE]}, recorded={IMAGE: image_data(1, "docker.io/lab/python")})
    assert pulling.sent()[0]["reference"] == f"lab/python@sha256:{'a' * 64}"


def test_settings_of_the_agent_are_sent(pulling: Pulling) -> None:
    pulling.variables["agent2"] = {"agent_registry_check": ["docker.io"], "agent_allow_registry_login": "yes"}
    pulling.pull([pulled()], {"agent2": [IMAGE]})
    assert pulling.sent()[0]["registry"] == {"registry_check": ["docker.io"], "allow_registry_login": True}


def test_an_agent_gets_credentials_of_one_registry_only(pulling: Pulling) -> None:
    registries = {"registry:5000": READER, "registry": {**READER, "password": "hunter3"}}
    pulling.variables["agent2"] = {"session_registries": registries}
    pulling.pull([pulled(), pulled(OTHER)], {"agent2": [IMAGE, OTHER]})
    plain = {**PLAIN, "name": IMAGE, "reference": IMAGE}
    named = [request for request in pulling.sent() if request["name"]]
    assert named == [plain, {**PLAIN, "name": OTHER, "reference": OTHER, "logins": {"registry:5000": READER}}]


def test_invalid_registries_are_named_without_secrets(pulling: Pulling) -> None:
    pulling.variables["agent2"] = {"session_registries": {"localhost": {"password": "hunter2"}}}
    failed = pulling.pull([], {"agent2": [IMAGE]})["agent2"]["failed"]
    assert failed == "session_registries.localhost.username must be one line of text."
