"""What agents are asked for in the steps of a start, and what their answers mean for its sessions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.start_steps import (
    Reply,
    Start,
    start_arguments,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import Decision
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.crew import STEP_SECONDS, AgentCrew
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.outcome import Outcome
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.requests import PATIENCE_SECONDS, Requests
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import Answer, Failure
from ansible_collections.backendai.cluster.plugins.plugin_utils.registry_logins import read_registries
from tests.unit.builders import IMAGE, image_data, plan, spec
from tests.unit.plugins.action.asked_hosts import GONE, Asked, AskedHosts
from tests.unit.plugins.action.stages import run_options

ASKED = spec(cluster_size=3, cluster_mode="multi-node", env={"TOKEN": "hunter2"}, authorized_keys=["ssh-ed25519 ALICE"])
MADE = plan({"agent1": 2, "agent2": 1})
ALONE = plan({"agent1": 1}, command="train")
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
READER = {"username": "reader", "password": "hunter3"}
REGISTRIES = {"docker.io": READER, "registry:5000": {"username": "reader", "password": "hunter4"}, "other": READER}
KEYS = {"main1": {"user": "USER", "host": "HOST"}}
CLAIMED: Mapping[str, Any] = {"steps": ["claim"]}


def start(of: Any = MADE, **changes: Any) -> Start:
    """Return a session that a run starts."""
    images = {"agent1": {IMAGE: image_data()}, "agent2": {}}
    decided = start_arguments(Decision(of, False, {}, {}, images), [OTHER_ID], nonce="n", never_completed=True)
    return Start({**decided, **changes})


def claimed(of: Start | None = None, **replies: Any) -> Start:
    """Return a session that its agents have claimed."""
    made = of or start()
    return made.after("claim", {agent: {**CLAIMED, **replies} for agent in made.agents})


class Site:
    """Agents that are asked, and what has come of it."""

    def __init__(self) -> None:
        self.variables: dict[str, dict[str, Any]] = {"agent1": {}, "agent2": {}}
        self.answer: Callable[[dict[str, Any]], dict[str, Any]] = lambda entry: {"steps": entry["steps"]}
        self.lines: list[str] = []
        self.outcome = Outcome(self.lines.append)
        self.hosts = AskedHosts(self.variables, self.reply, self.outcome.take)
        self.options: dict[str, Any] = {}

    def reply(self, asked: Asked) -> Answer:
        return {"changed": True, "sessions": {entry["id"]: self.answer(entry) for entry in asked.options["sessions"]}}

    def take(self, step: str, *starts: Start) -> dict[str, dict[str, Any]]:
        """Have agents take a step, and return their replies."""
        run = run_options(**self.options)
        specs = {each.id: ASKED for each in starts}
        several = len(starts) > 1
        requests = Requests(run, specs, lambda _agent, kind, _known: f"{kind}=1", read_registries, several=several)
        work: dict[str, list[tuple[Start, list[str]]]] = {}
        for each in starts:
            for agent in each.agents:
                steps = [step] if step == "remove" else each.steps_of(agent, step, 5)
                if steps:
                    work.setdefault(agent, []).append((each, steps))
        replies: dict[str, Mapping[str, Reply]] = {}
        AgentCrew(self.hosts, requests, self.outcome, run.claim_ttl).take(step, work, replies)
        return {agent: {name: dict(reply) for name, reply in known.items()} for agent, known in replies.items()}

    def sessions(self, agent: str = "agent1") -> list[dict[str, Any]]:
        """The sessions of the last request to an agent."""
        listed: list[dict[str, Any]] = [each for each in self.hosts.asked if each.host == agent][-1].options["sessions"]
        return listed


@pytest.fixture
def site() -> Site:
    return Site()


# ---- what is asked


def test_claim_request_has_no_secrets(site: Site) -> None:
    replies = site.take("claim", start())
    assert site.sessions() == [
        {
            "id": MADE.id,
            "nonce": "n",
            "steps": ["claim"],
            "agent": "agent1",
            "plan": MADE.to_dict(),
            "stale_sessions": [OTHER_ID],
            "never_completed": True,
            "seconds": 600,
        }
    ]
    assert {(each.phase, each.seconds) for each in site.hosts.asked} == {("start", STEP_SECONDS + 600)}
    assert "hunter2" not in f"{site.hosts.asked}"
    assert replies == {agent: {MADE.id: {"steps": ["claim"]}} for agent in ("agent1", "agent2")}
    assert site.outcome.changed


def test_apply_request_has_files_keys_and_images(site: Site) -> None:
    site.take("apply", claimed(public_keys=KEYS))
    (entry,) = site.sessions()
    assert {"steps", "plan", "public_keys", "images", "contents"} <= entry.keys()
    assert not {"stale_sessions", "seconds"} & entry.keys()
    assert (entry["public_keys"], entry["images"]) == (KEYS, {"agent1": {IMAGE: image_data()}, "agent2": {}})
    assert entry["contents"]["user_keys"] == ["ssh-ed25519 ALICE"]


@pytest.mark.parametrize("of", [ALONE, MADE], ids=["one request", "its own step"])
def test_only_apply_gets_the_logins_to_the_registries_of_its_images(site: Site, of: Any) -> None:
    for variables in site.variables.values():
        variables["session_registries"] = REGISTRIES
    site.take("claim", start(of))
    if of is MADE:
        site.take("apply", claimed())
    assert site.sessions()[0]["logins"] == {"docker.io": READER}
    requests = [entry for each in site.hosts.asked for entry in each.options["sessions"]]
    assert all(("logins" in entry) == ("apply" in entry["steps"]) for entry in requests)
    assert "hunter4" not in f"{site.hosts.asked}"


def test_agent_waits_for_a_limited_time_if_several_sessions_start(site: Site) -> None:
    other = dataclasses.replace(ALONE, id=OTHER_ID, name=MADE.name)
    site.take("claim", start(ALONE), start(other))
    assert [entry["patience"] for entry in site.sessions()] == [PATIENCE_SECONDS] * 2
    site.take("claim", start(ALONE))
    assert "patience" not in site.sessions()[0]


def test_slow_session_goes_on_with_the_step_ready(site: Site) -> None:
    slow = start(ALONE).after("claim", {"agent1": {"steps": ["claim", "apply"], "starting": True}})
    site.take("ready", slow)
    assert site.sessions() == [
        {"id": ALONE.id, "nonce": "n", "steps": ["ready", "commit", "command"], "agent": "agent1"}
    ]
    assert site.hosts.asked[-1].phase == "start"


def test_commit_step_is_sent_along_with_apply(site: Site) -> None:
    site.take("apply", claimed())
    (entry,) = site.sessions()
    assert (entry["steps"], entry["may_commit_later"]) == (["apply", "commit"], True)


@pytest.mark.parametrize("missing", [{}, {"agent1": [IMAGE]}], ids=["one request", "after a pull"])
def test_check_on_one_agent_waits_for_no_other_agent(site: Site, missing: dict[str, list[str]]) -> None:
    committed = start(plan({"agent1": 1}), public_keys=KEYS, missing_images=missing)
    if missing:
        committed = committed.after("pull", {"agent1": {"images": {}}})
    site.take("apply" if missing else "claim", committed)
    (entry,) = site.sessions()
    assert entry["steps"] == ["apply", "commit"]
    assert "may_commit_later" not in entry


def test_pulled_images_are_sent_to_all_agents(site: Site) -> None:
    pulled: dict[str, Any] = {"agent1": {"images": {}}, "agent2": {"images": {IMAGE: image_data(2)}}}
    pulling = claimed(start(missing_images={"agent2": [IMAGE]})).after("pull", pulled)
    site.take("apply", pulling)
    assert site.sessions()[0]["images"] == {"agent1": {IMAGE: image_data()}, "agent2": {IMAGE: image_data(2)}}
    assert pulling.decided["images"]["agent2"] == {}


@pytest.mark.parametrize("step", ["commit", "command"])
def test_later_steps_need_no_plan(site: Site, step: str) -> None:
    with_command = claimed(start(plan({"agent1": 2, "agent2": 1}, command="train")))
    # The check was made along with the start, too early.
    with_command = with_command.after("apply", {agent: {"steps": ["apply"]} for agent in with_command.agents})
    if step == "command":
        with_command = with_command.after("commit", {agent: {"steps": ["commit"]} for agent in with_command.agents})
    site.take(step, with_command)
    assert site.sessions() == [{"id": MADE.id, "nonce": "n", "steps": [step], "agent": "agent1"}]


def test_session_on_one_agent_runs_all_steps_in_one_request(site: Site) -> None:
    site.take("claim", start(ALONE))
    (entry,) = site.sessions()
    assert entry["steps"] == ["claim", "apply", "commit", "command"]
    assert {"plan", "contents", "images"} <= entry.keys()


def test_one_request_has_the_sessions_of_a_run(site: Site) -> None:
    elsewhere = start(dataclasses.replace(plan({"agent2": 1}), id="11111111-3c0e-4f5e-9d0a-0f3c1d2e4b6a"))
    other = start(dataclasses.replace(MADE, id=OTHER_ID), nonce="m")
    site.take("claim", start(), elsewhere, other)
    assert [(entry["id"], entry["nonce"]) for entry in site.sessions()] == [(MADE.id, "n"), (OTHER_ID, "m")]
    assert len(site.hosts.asked) == 2


def test_removal_names_the_session_and_the_run(site: Site) -> None:
    site.take("remove", start())
    assert {each.phase for each in site.hosts.asked} == {"remove"}
    assert [(entry["id"], entry["nonce"]) for entry in site.sessions()] == [(MADE.id, "n")]


def test_fresh_homes_are_asked_for_where_containers_are_applied(site: Site) -> None:
    site.take("claim", start(ALONE))
    assert ("apply" in site.sessions()[0]["steps"], "fresh_home" in site.sessions()[0]) == (True, False)
    site.options["fresh_home"] = True
    site.take("claim", start(ALONE))
    assert site.sessions()[0]["fresh_home"] is True
    site.take("claim", start())
    assert ("apply" in site.sessions()[0]["steps"], "fresh_home" in site.sessions()[0]) == (False, False)


# ---- what comes back


def test_failed_request_fails_its_sessions(site: Site) -> None:
    site.hosts = AskedHosts(site.variables, lambda _asked: Failure("start docker."), site.outcome.take)
    assert site.take("claim", start(ALONE)) == {"agent1": {MADE.id: {"failed": "start docker."}}}
    assert site.lines[-1] == "Claim resources (agent1): failed: start docker."
    assert site.outcome.unreachable == {}


def test_unreachable_agent_fails_its_sessions(site: Site) -> None:
    site.hosts = AskedHosts(site.variables, lambda _asked: GONE, site.outcome.take)
    assert site.take("claim", start(ALONE)) == {"agent1": {MADE.id: {"failed": "it became unreachable"}}}
    assert site.outcome.unreachable == {"agent1": "no route to host"}


def test_lost_output_is_a_warning(site: Site) -> None:
    site.answer = lambda entry: {"steps": entry["steps"], "lost_output": ["main1: no room", "sub1: no room"]}
    site.take("claim", start(ALONE))
    assert site.outcome.warnings == [f"{MADE.name}: output was lost: main1: no room; sub1: no room"]


def test_warnings_of_a_claim_name_the_agent(site: Site) -> None:
    site.answer = lambda entry: {"steps": entry["steps"], "warnings": ["container web: of no session."]}
    site.take("claim", start(ALONE))
    assert site.outcome.warnings == ["agent1: container web: of no session."]


def test_replies_about_other_sessions_are_ignored(site: Site) -> None:
    lie = {"sessions": {OTHER_ID: {"steps": ["claim"], "warnings": ["no"]}}}
    site.hosts = AskedHosts(site.variables, lambda _asked: lie)
    assert site.take("claim", start(ALONE)) == {"agent1": {}}
    assert site.outcome.warnings == []


def test_each_step_of_each_agent_is_a_line_and_a_failure_has_its_reason(site: Site) -> None:
    site.answer = lambda entry: {"refused": "no\nroom"} if entry["agent"] == "agent2" else {"steps": ["claim"]}
    site.take("claim", start())
    assert site.lines == [
        "Claim resources: begun",
        "Claim resources (agent1): done",
        "Claim resources (agent2): failed: no room",
    ]


# ---- the agent


def test_agent_options_come_from_its_variables(site: Site) -> None:
    site.variables["agent1"] = {"agent_cpu_overcommit": "8"}
    site.take("claim", start(ALONE))
    options = site.hosts.asked[0].options
    assert (options["settings"]["cpu_overcommit"], options["settings"]["resource_group"]) == (8, "default")
    assert options["default_network"] == "backendai-default"
    assert options["registry"] == {"registry_check": [], "allow_registry_login": False}
    assert options["limits"] == {"pids_limit": 4096, "pids_per_core": 512, "log_max_size": "20m", "log_max_files": 5}
    site.variables["agent1"] = {"agent_default_network": "world", "agent_pids_limit": "0"}
    site.take("claim", start(ALONE))
    options = site.hosts.asked[1].options
    assert (options["default_network"], options["limits"]["pids_limit"]) == ("world", 0)
    site.variables["agent1"] = {"agent_registry_check": ["*"]}
    site.take("claim", start(ALONE))
    assert site.hosts.asked[2].options["registry"] == {"registry_check": ["*"], "allow_registry_login": False}


def test_invalid_variable_is_the_failure_of_its_agent(site: Site) -> None:
    site.variables["agent1"]["agent_cpu_overcommit"] = "many"
    replies = site.take("claim", start())
    assert replies["agent1"][MADE.id]["failed"].startswith("agent_*: ")
    assert "cpu_overcommit" in replies["agent1"][MADE.id]["failed"]
    assert replies["agent2"] == {MADE.id: {"steps": ["claim"]}}
