"""The action session_step: requests to agents, and the kept parts of replies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from ansible_collections.backendai.cluster.plugins.action.session_step import (
    PATIENCE_SECONDS,
    STEP_SECONDS,
    ActionModule,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.decision import Decision
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import start_arguments
from tests.unit.builders import IMAGE, image_data, plan, spec
from tests.unit.plugins.action.conftest import Run
from tests.unit.rendering import OPTIONS_OF_RUN, Rendering

ASKED = spec(cluster_size=3, cluster_mode="multi-node", env={"TOKEN": "hunter2"}, authorized_keys=["ssh-ed25519 ALICE"])
MADE = plan({"agent1": 2, "agent2": 1})
ALONE = plan({"agent1": 1}, command="train")
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
READER = {"username": "reader", "password": "hunter3"}
REGISTRIES = {"docker.io": READER, "registry:5000": {"username": "reader", "password": "hunter4"}, "other": READER}
KEYS = {"main1": {"user": "USER", "host": "HOST"}}


def start(of: Any = MADE, **changes: Any) -> dict[str, Any]:
    """Return a session that a run starts."""
    images = {"agent1": {IMAGE: image_data()}, "agent2": {}}
    decision = Decision(of, False, {}, {}, images)
    start = start_arguments(decision, [OTHER_ID], never_completed=True)
    return {**start, "nonce": "n", **changes}


class Host:
    """Agents that reply; ``asked`` has their requests with the timeouts."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.asked: list[tuple[str, dict[str, Any], int]] = []
        self.answer: Callable[[dict[str, Any]], dict[str, Any]] = lambda entry: {"steps": entry["steps"]}
        self.variables: dict[str, dict[str, Any]] = {
            "agent1": {},
            "agent2": {},
            "localhost": {
                "__session_request": {"specs": {ASKED.name: dataclasses.asdict(ASKED)}, "run": OPTIONS_OF_RUN}
            },
        }

    def take(self, step: str, *starts: dict[str, Any], agent: str = "agent1", **how: Any) -> dict[str, Any]:
        """Return the result of a step on an agent, and keep it for the next one; ``about`` are its variables."""
        host = self

        class Asking(Rendering, ActionModule):
            def call(self, phase: str, options: Any, task_vars: dict[str, Any], seconds: int) -> dict[str, Any]:
                assert task_vars["inventory_hostname"] == agent
                host.asked.append((phase, options, seconds))
                return {"changed": True, "sessions": {entry["id"]: host.answer(entry) for entry in options["sessions"]}}

        variables = how.pop("about", {})
        args = {"step": step, "starts": [*starts]}
        arguments = {"inventory_hostname": agent, "hostvars": self.variables, **variables}
        result = self._run(Asking, args, arguments, **how)
        self.variables[agent][f"__session_{step}"] = result
        return result

    @property
    def sessions(self) -> list[dict[str, Any]]:
        """The sessions of the last request."""
        listed: list[dict[str, Any]] = self.asked[-1][1]["sessions"]
        return listed


@pytest.fixture
def host(run: Run) -> Host:
    return Host(run)


# ---- what is asked


def test_replies_of_agents_of_other_sessions_are_not_looked_up(host: Host) -> None:
    elsewhere = {**start(plan({"agent9": 1})), "id": OTHER_ID}
    host.take("claim", start(), elsewhere)
    assert [entry["id"] for entry in host.sessions] == [MADE.id]
    assert host.take("apply", elsewhere)["skipped"] is True


def test_claim_request_has_no_secrets(host: Host) -> None:
    result = host.take("claim", start())
    assert host.sessions == [
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
    assert (host.asked[0][0], host.asked[0][2]) == ("start", STEP_SECONDS + 600)
    assert "hunter2" not in f"{host.asked}"
    assert result["sessions"] == {MADE.id: {"steps": ["claim"], "nonce": "n"}}


def test_apply_request_has_files_keys_and_images(host: Host) -> None:
    host.answer = lambda _one: {"public_keys": KEYS}
    for agent in ("agent1", "agent2"):
        host.take("claim", start(), agent=agent)
    host.take("apply", start())
    (entry,) = host.sessions
    assert {"steps", "plan", "public_keys", "images", "contents"} <= entry.keys()
    assert not {"stale_sessions", "seconds"} & entry.keys()
    assert (entry["public_keys"], entry["images"]) == (KEYS, {"agent1": {IMAGE: image_data()}, "agent2": {}})
    assert entry["contents"]["user_keys"] == ["ssh-ed25519 ALICE"]


@pytest.mark.parametrize("of", [ALONE, MADE], ids=["one request", "its own step"])
def test_only_apply_gets_the_logins_to_the_registries_of_its_images(host: Host, of: Any) -> None:
    steps = ["claim"] if of is ALONE else ["claim", "apply"]
    for step in steps:
        for agent in of.agents:
            host.take(step, start(of), agent=agent, about={"session_registries": REGISTRIES})
    assert host.sessions[0]["logins"] == {"docker.io": READER}
    requests = [entry for _phase, options, _seconds in host.asked for entry in options["sessions"]]
    assert all(("logins" in entry) == ("apply" in entry["steps"]) for entry in requests)
    assert "hunter4" not in f"{host.asked}"


def test_agent_waits_for_a_limited_time_if_several_sessions_start(host: Host) -> None:
    other = dataclasses.replace(ALONE, id=OTHER_ID, name=MADE.name)
    host.take("claim", start(ALONE), start(other))
    assert [entry["patience"] for entry in host.sessions] == [PATIENCE_SECONDS] * 2
    host.take("claim", start(ALONE))
    assert "patience" not in host.sessions[0]


def test_slow_session_goes_on_with_the_step_ready(host: Host) -> None:
    host.answer = lambda _entry: {"steps": ["claim", "apply"], "starting": True}
    host.take("claim", start(ALONE))
    assert host.take("remove", start(ALONE))["skipped"]
    host.answer = lambda entry: {"steps": entry["steps"]}
    host.take("ready", start(ALONE))
    assert host.sessions == [{"id": ALONE.id, "nonce": "n", "steps": ["ready", "commit", "command"], "agent": "agent1"}]
    assert host.asked[-1][0] == "start"
    assert host.take("remove", start(ALONE))["skipped"]


def test_commit_step_is_sent_along_with_apply(host: Host) -> None:
    for step in ("claim", "apply"):
        for agent in ("agent1", "agent2"):
            host.take(step, start(), agent=agent)
    (entry,) = host.sessions
    assert (entry["steps"], entry["may_commit_later"]) == (["apply", "commit"], True)
    assert host.take("commit", start())["skipped"]


@pytest.mark.parametrize("missing", [{}, {"agent1": [IMAGE]}], ids=["one request", "after a pull"])
def test_check_on_one_agent_waits_for_no_other_agent(host: Host, missing: dict[str, list[str]]) -> None:
    committed = start(plan({"agent1": 1}), public_keys=KEYS, missing_images=missing)
    if missing:
        host.variables["agent1"]["__session_pull"] = {"sessions": {MADE.id: {"nonce": "n", "images": {}}}}
    host.take("apply" if missing else "claim", committed)
    (entry,) = host.sessions
    assert entry["steps"] == ["apply", "commit"]
    assert "may_commit_later" not in entry


def test_pulled_images_are_sent_to_all_agents(host: Host) -> None:
    pulling = start(missing_images={"agent2": [IMAGE]})
    for agent in ("agent1", "agent2"):
        host.take("claim", pulling, agent=agent)
        images = {IMAGE: image_data(2)} if agent == "agent2" else {}
        host.variables[agent]["__session_pull"] = {"sessions": {MADE.id: {"nonce": "n", "images": images}}}
    host.take("apply", pulling)
    assert host.sessions[0]["images"] == {"agent1": {IMAGE: image_data()}, "agent2": {IMAGE: image_data(2)}}
    assert pulling["images"]["agent2"] == {}


@pytest.mark.parametrize("step", ["commit", "command"])
def test_later_steps_need_no_plan(host: Host, step: str) -> None:
    # The check was made along with the start, too early.
    host.answer = lambda entry: {"steps": entry["steps"][:1]}
    with_command = start(plan({"agent1": 2, "agent2": 1}, command="train"))
    for earlier in ("claim", "apply", *(["commit"] if step == "command" else [])):
        for agent in ("agent1", "agent2"):
            host.take(earlier, with_command, agent=agent)
    host.take(step, with_command)
    assert host.sessions == [{"id": MADE.id, "nonce": "n", "steps": [step], "agent": "agent1"}]


def test_session_on_one_agent_runs_all_steps_in_one_request(host: Host) -> None:
    host.take("claim", start(ALONE))
    (entry,) = host.sessions
    assert entry["steps"] == ["claim", "apply", "commit", "command"]
    assert {"plan", "contents", "images"} <= entry.keys()
    assert [host.take(step, start(ALONE)).get("skipped") for step in ("apply", "commit", "command")] == [True] * 3


def test_one_request_has_the_sessions_of_a_run(host: Host) -> None:
    elsewhere = start(plan({"agent2": 1}))
    other = start(dataclasses.replace(MADE, id=OTHER_ID), nonce="m")
    result = host.take("claim", start(), elsewhere, other)
    assert [entry["id"] for entry in host.sessions] == [MADE.id, OTHER_ID]
    assert {name: entry["nonce"] for name, entry in result["sessions"].items()} == {MADE.id: "n", OTHER_ID: "m"}


def test_idle_agent_is_skipped(host: Host) -> None:
    assert host.take("claim", start(plan({"agent2": 1})))["skipped"] is True
    assert host.take("apply", start())["skipped"] is True
    assert host.asked == []


# ---- the way back


@pytest.mark.parametrize("fault", [{"failed": "no."}, {"refused": "no room"}], ids=["failed", "refused"])
@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
def test_failed_session_is_removed_on_all_agents(host: Host, fault: dict[str, str], check_mode: bool) -> None:
    host.take("claim", start())
    host.answer = lambda _one: fault
    host.take("claim", start(), agent="agent2")
    for agent in ("agent1", "agent2"):
        assert host.take("remove", start(), agent=agent, check_mode=check_mode).get("skipped", False) is check_mode
    removals = [options["sessions"] for phase, options, _seconds in host.asked if phase == "remove"]
    assert [(entry["id"], entry["nonce"]) for (entry,) in removals] == ([] if check_mode else [(MADE.id, "n")] * 2)


def test_successful_session_is_not_removed(host: Host) -> None:
    for step in ("claim", "apply", "commit"):
        for agent in ("agent1", "agent2"):
            host.take(step, start(), agent=agent)
    assert host.take("remove", start())["skipped"] is True


def failing(error: Exception) -> Callable[[dict[str, Any]], NoReturn]:
    def fail(_one: dict[str, Any]) -> NoReturn:
        raise error

    return fail


def test_failed_request_fails_its_sessions(host: Host) -> None:
    host.answer = failing(AnsibleActionFail("start docker."))
    with pytest.raises(AnsibleActionFail) as failed:
        host.take("claim", start())
    assert {"failed": True, "msg": "start docker."}.items() <= failed.value.result.items()
    assert failed.value.result["sessions"] == {MADE.id: {"nonce": "n", "failed": "start docker."}}


def test_unreachable_agent_fails_its_sessions(host: Host) -> None:
    host.answer = failing(AnsibleConnectionFailure("no route to host"))
    result = host.take("claim", start())
    assert (result["unreachable"], result["msg"]) == (True, "no route to host")
    assert result["sessions"] == {MADE.id: {"nonce": "n", "failed": "it became unreachable"}}


def test_lost_output_is_a_warning(host: Host) -> None:
    host.answer = lambda entry: {"steps": entry["steps"], "lost_output": ["main1: no room", "sub1: no room"]}
    expected = [f"{MADE.name}: output was lost: main1: no room; sub1: no room"]
    assert host.take("claim", start(ALONE))["warnings"] == expected


def test_warnings_of_a_claim_name_the_agent(host: Host) -> None:
    host.answer = lambda entry: {"steps": entry["steps"], "warnings": ["container web: of no session."]}
    assert host.take("claim", start(ALONE))["warnings"] == ["agent1: container web: of no session."]


def test_replies_about_other_sessions_are_ignored(host: Host, run: Run) -> None:
    class Lying(ActionModule):
        def call(self, *_asked: Any) -> dict[str, Any]:
            return {"sessions": {OTHER_ID: {"steps": ["claim"], "warnings": ["no"]}}}

    args = {"step": "claim", "starts": [start()]}
    result = run(Lying, args, {"inventory_hostname": "agent1", "hostvars": host.variables})
    assert (result["sessions"], result.get("warnings")) == ({}, None)


# ---- the agent


def test_agent_options_come_from_its_variables(host: Host) -> None:
    host.take("claim", start(), about={"agent_docker_host": "unix:///d", "agent_cpu_overcommit": "8"})
    options = host.asked[0][1]
    assert (options["docker_host"], options["state_path"]) == ("unix:///d", "/var/lib/backendai")
    assert (options["settings"]["cpu_overcommit"], options["settings"]["resource_group"]) == (8, "default")
    assert options["default_network"] == "backendai-default"
    assert options["registry"] == {"registry_check": [], "allow_registry_login": False}
    assert options["limits"] == {
        "pids_limit": 4096,
        "pids_per_core": 512,
        "log_max_size": "20m",
        "log_max_files": 5,
    }
    host.take("claim", start(), about={"agent_default_network": "world", "agent_pids_limit": "0"})
    assert (host.asked[1][1]["default_network"], host.asked[1][1]["limits"]["pids_limit"]) == ("world", 0)
    host.take("claim", start(), about={"agent_registry_check": ["*"]})
    assert host.asked[2][1]["registry"] == {"registry_check": ["*"], "allow_registry_login": False}


def test_invalid_variable_is_reported(host: Host) -> None:
    with pytest.raises(AnsibleActionFail, match=r"^agent_\*: .*cpu_overcommit.*\.$"):
        host.take("claim", start(), about={"agent_cpu_overcommit": "many"})
    assert host.asked == []


def test_fresh_homes_are_asked_for_where_containers_are_applied(host: Host) -> None:
    host.take("claim", start(ALONE))
    assert ("apply" in host.sessions[0]["steps"], "fresh_home" in host.sessions[0]) == (True, False)
    host.variables["localhost"]["__session_request"]["run"] = {**OPTIONS_OF_RUN, "fresh_home": True}
    host.take("claim", start(ALONE))
    assert host.sessions[0]["fresh_home"] is True
    host.take("claim", start())
    assert ("apply" in host.sessions[0]["steps"], "fresh_home" in host.sessions[0]) == (False, False)
