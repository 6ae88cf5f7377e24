"""The start phase: arguments and results of each step, and failures."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import CheckFailedError, ClusterError
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import PublicKeys
from ansible_collections.backendai.cluster.plugins.module_utils._model.images import Credential, ImageIdentity
from ansible_collections.backendai.cluster.plugins.module_utils._model.limits import ContainerLimits
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._module import CAPACITY_OPTIONS
from ansible_collections.backendai.cluster.plugins.module_utils._program import start
from ansible_collections.backendai.cluster.plugins.module_utils._session import apply as apply_module
from ansible_collections.backendai.cluster.plugins.module_utils._session import check as check_module
from ansible_collections.backendai.cluster.plugins.module_utils._session import claim as claim_module
from ansible_collections.backendai.cluster.plugins.module_utils._session import command as command_module
from ansible_collections.backendai.cluster.plugins.module_utils._session.apply import ApplyRequest
from ansible_collections.backendai.cluster.plugins.module_utils._session.claim import (
    ClaimRefusedError,
    ClaimRequest,
    ClaimResult,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.contents import RenderedFiles
from ansible_collections.backendai.cluster.plugins.module_utils._session.facts import AgentSettings
from ansible_collections.backendai.cluster.plugins.module_utils._session.image_access import ImageAccess
from ansible_collections.backendai.cluster.plugins.module_utils._session.mount_sources import MountSettings
from tests.unit.builders import IMAGE, SESSION_ID, held, image_data, plan
from tests.unit.phases import NOWHERE, failure_of, reply_of, result_of

MADE = plan({"agent1": 1, "agent2": 1})
BATCH = plan({"agent1": 1}, command="python train.py")
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
LIMITS = ContainerLimits(pids=100, pids_per_core=10, log_bytes=1 << 20, log_files=2)
SETTINGS = {name: option["default"] for name, option in CAPACITY_OPTIONS.items()}
RUNNING = {"main1": {"status": "running", "image_digest": "sha256:1"}}
THEIRS = {"sub1": {"user": "USER-2", "host": "HOST-2"}}
LOGINS = {"docker.io": {"username": "reader", "password": "hunter3"}}
CONTENTS = {
    "hosts": "127.0.0.1 localhost\n",
    "ssh_config": "Host *\n",
    "environments": {"main1": {"TOKEN": "hunter2"}},
    "user_keys": ["ssh-ed25519 ALICE"],
    "bootstrap": "export A=1",
}
ALL = ["claim", "apply", "commit", "command"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": ".venv/collections"}
STEPS = [
    (claim_module, "claim"),
    (apply_module, "apply_claimed"),
    (apply_module, "await_claimed"),
    (check_module, "check_and_commit"),
    (command_module, "start_command"),
]


def session_request(steps: list[str], session_id: str = SESSION_ID, of: SessionPlan = MADE) -> dict[str, Any]:
    """Return the request for one session."""
    return {
        "id": session_id,
        "nonce": "n",
        "steps": steps,
        "agent": "agent1",
        "plan": {**of.to_dict(), "id": session_id},
        "seconds": 60,
        "stale_sessions": [OTHER_ID],
        "never_completed": True,
        "public_keys": THEIRS,
        "images": {"agent2": {IMAGE: image_data()}},
        "contents": CONTENTS,
        "logins": LOGINS,
    }


def options_for(*sessions: dict[str, Any], state_path: str = "/nowhere") -> dict[str, Any]:
    options = {"docker_host": NOWHERE, "state_path": state_path, "settings": SETTINGS, "default_network": "world"}
    options["limits"] = {"pids_limit": 100, "pids_per_core": 10, "log_max_size": "1m", "log_max_files": 2}
    options["registry"] = {"registry_check": ["docker.io"]}
    return {**options, "sessions": [*sessions]}


class Agent:
    """An agent on which every step succeeds; ``calls`` records the steps in order with their arguments."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, Any, bool]] = []
        self.errors: dict[tuple[str, str], Exception] = {}
        patch.setattr(start, "connect", lambda address: f"client of {address}")
        self.is_ready = True
        self.lost: dict[str, str] = {}
        self.warnings: tuple[str, ...] = ()
        for module, name in STEPS:
            patch.setattr(module, name, getattr(self, name))

    def claim(
        self, client: str, _store: Store, settings: AgentSettings, request: ClaimRequest, *, check_mode: bool
    ) -> ClaimResult:
        assert (client, settings) == (f"client of {NOWHERE}", AgentSettings(**SETTINGS, docker_host=NOWHERE))
        self._take("claim", request.plan.id, request, check_mode)
        changes = [Change(f"claim {request.plan.name} on agent1", None, "1 containers")]
        return ClaimResult(changes, {"main1": PublicKeys("USER-1", "HOST-1")}, self.warnings)

    def apply_claimed(
        self, _client: str, _store: Store, request: ApplyRequest, *, check_mode: bool
    ) -> tuple[list[Change], bool, dict[str, str]]:
        self._take("apply", request.plan.id, request, check_mode)
        return [Change("container main1", None, "running")], self.is_ready, self.lost

    def await_claimed(self, _client: str, _store: Store, *arguments: Any) -> None:
        self._take("ready", arguments[0], arguments, False)

    def check_and_commit(self, _client: str, _store: Store, *arguments: Any) -> dict[str, Any]:
        self._take("commit", arguments[0], arguments, False)
        return RUNNING

    def start_command(self, _store: Store, session_id: str, nonce: str, *, check_mode: bool) -> list[Change]:
        self._take("command", session_id, nonce, check_mode)
        return [Change("command of train-llm in main1", None, "started")]

    def _take(self, step: str, session_id: str, given: Any, check_mode: bool) -> None:
        self.calls.append((step, given, check_mode))
        if (step, session_id) in self.errors:
            raise self.errors[step, session_id]

    @property
    def steps_run(self) -> list[tuple[str, bool]]:
        """The steps in their order, and whether each was told to change nothing."""
        return [(step, check_mode) for step, _given, check_mode in self.calls]


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Agent:
    """Return an agent on which every step succeeds."""
    return Agent(monkeypatch)


# ---- one session


def test_claim_returns_keys_and_changes(agent: Agent) -> None:
    assert result_of("start", options_for(session_request(["claim"]))) == {
        "changed": True,
        "diff": {"before": "", "after": "claim train-llm on agent1: 1 containers\n"},
        "sessions": {SESSION_ID: {"steps": ["claim"], "public_keys": {"main1": {"user": "USER-1", "host": "HOST-1"}}}},
    }
    expected = ClaimRequest(MADE, "agent1", "n", 60, [OTHER_ID], True)
    assert agent.calls == [("claim", expected, False)]


def test_a_claim_returns_what_it_warns_of(agent: Agent) -> None:
    agent.warnings = ("container web: of no session.",)
    result = result_of("start", options_for(session_request(["claim"])))["sessions"][SESSION_ID]
    assert result["warnings"] == ["container web: of no session."]


def test_a_claim_knows_whether_the_same_request_applies_it(agent: Agent) -> None:
    result_of("start", options_for(session_request(["claim", "apply"])))
    assert agent.calls[0][1].applied_next


def test_a_request_that_only_claims_imports_no_other_step() -> None:
    package = "ansible_collections.backendai.cluster.plugins.module_utils"
    line = f"import sys, {package}._program.start, {package}._session.claim as claim; print("
    line += f"[name for name in ('apply', 'check', 'command') if f'{package}._session.{{name}}' in sys.modules])"
    result = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert result.stdout == "[]\n"


@pytest.mark.parametrize("claimed", [False, True], ids=["claimed before", "claimed by the same request"])
def test_apply_gets_the_keys_of_all_containers(agent: Agent, claimed: bool) -> None:
    result = result_of("start", options_for(session_request(["claim", "apply"] if claimed else ["apply"])))
    assert (result["changed"], result["sessions"][SESSION_ID]["steps"][-1]) == (True, "apply")
    own_keys = {"main1": PublicKeys("USER-1", "HOST-1")} if claimed else {}
    contents = RenderedFiles(
        hosts="127.0.0.1 localhost\n",
        ssh_config="Host *\n",
        environments={"main1": {"TOKEN": "hunter2"}},
        keys={"sub1": PublicKeys("USER-2", "HOST-2"), **own_keys},
        user_keys=("ssh-ed25519 ALICE",),
        bootstrap="export A=1",
    )
    images = {"agent2": {IMAGE: ImageIdentity("sha256:1", "sha256:1")}}
    access = ImageAccess({"docker.io": Credential("reader", "hunter3")}, ["docker.io"])
    mounts = MountSettings(["/"], NOWHERE)
    request = ApplyRequest(MADE, "agent1", "n", contents, "world", images, access, limits=LIMITS, mounts=mounts)
    assert agent.calls[-1] == ("apply", request, False)
    assert "hunter3" not in f"{agent.calls}"


def test_check_commits_and_returns_containers(agent: Agent) -> None:
    result = result_of("start", options_for(session_request(["commit"])))
    assert (result["changed"], result["sessions"][SESSION_ID]) == (False, {"steps": ["commit"], "containers": RUNNING})
    assert agent.calls == [("commit", (SESSION_ID, "n", start.CHECK_SECONDS), False)]


def test_early_check_that_fails_is_no_failure(agent: Agent) -> None:
    agent.errors["commit", SESSION_ID] = CheckFailedError("main1 does not reach sub2 over TCP")
    early = {**session_request(["apply", "commit"]), "may_commit_later": True}
    assert result_of("start", options_for(early))["sessions"][SESSION_ID] == {"steps": ["apply"]}
    assert agent.calls[-1] == ("commit", (SESSION_ID, "n", start.FIRST_CHECK_SECONDS), False)


def test_session_of_one_agent_runs_all_steps_in_order(agent: Agent) -> None:
    result = result_of("start", options_for(session_request(ALL, of=BATCH)))
    assert [step for step, _dry in agent.steps_run] == ALL
    assert result["sessions"][SESSION_ID]["steps"] == ALL
    assert result["diff"]["after"].splitlines() == [
        "claim train-llm on agent1: 1 containers",
        "container main1: running",
        "command of train-llm in main1: started",
    ]


def test_check_mode_claims_and_applies_dry_and_skips_the_check(agent: Agent) -> None:
    result = result_of("start", options_for(session_request(ALL)), check_mode=True)
    assert agent.steps_run == [("claim", True), ("apply", True)]
    # The steps count as completed: nothing failed.
    assert (result["changed"], result["sessions"][SESSION_ID]["steps"]) == (True, ALL)
    assert "containers" not in result["sessions"][SESSION_ID]


# ---- failures


def test_refused_claim_has_a_reason_and_is_no_failure(agent: Agent) -> None:
    agent.errors["claim", SESSION_ID] = ClaimRefusedError("agent1 no longer has room for 1 container of cpu 1, mem 1g")
    assert result_of("start", options_for(session_request(ALL))) == {
        "changed": False,
        "diff": {"before": "", "after": ""},
        "sessions": {
            SESSION_ID: {"steps": [], "refused": "agent1 no longer has room for 1 container of cpu 1, mem 1g"}
        },
    }
    assert agent.steps_run == [("claim", False)]


@pytest.mark.parametrize("step", ALL)
def test_failed_step_is_the_last_one_and_has_a_message(agent: Agent, step: str) -> None:
    agent.errors[step, SESSION_ID] = ValueError("agent_slots: /dev/nope of lab.device is not a device node here")
    result = result_of("start", options_for(session_request(ALL)))["sessions"][SESSION_ID]
    assert result["failed"] == "agent_slots: /dev/nope of lab.device is not a device node here."
    assert "refused" not in result
    assert [name for name, _dry in agent.steps_run] == [*result["steps"], step] == ALL[: ALL.index(step) + 1]


@pytest.mark.parametrize("error", [ClaimRefusedError("full"), ValueError("no")], ids=["refused", "failed"])
def test_failure_of_one_session_stops_no_other(agent: Agent, error: Exception) -> None:
    agent.errors["claim", SESSION_ID] = error
    result = result_of("start", options_for(session_request(ALL), session_request(ALL, OTHER_ID)))
    assert {name: session["steps"] for name, session in result["sessions"].items()} == {SESSION_ID: [], OTHER_ID: ALL}


def test_bootstrap_of_one_session_does_not_delay_the_commit_of_another(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed, claims = threading.Event(), []

    def apply(
        client: str, store: Store, request: ApplyRequest, *, check_mode: bool
    ) -> tuple[list[Change], bool, dict[str, str]]:
        claims.append(len([step for step, _dry in agent.steps_run if step == "claim"]))
        if request.plan.id == SESSION_ID and not committed.wait(60):
            raise ValueError("the other session was not committed meanwhile")
        return agent.apply_claimed(client, store, request, check_mode=check_mode)

    def commit(client: str, store: Store, *arguments: Any) -> dict[str, Any]:
        if arguments[0] == OTHER_ID:
            committed.set()
        return agent.check_and_commit(client, store, *arguments)

    monkeypatch.setattr(apply_module, "apply_claimed", apply)
    monkeypatch.setattr(check_module, "check_and_commit", commit)
    result = result_of("start", options_for(session_request(ALL), session_request(ALL, OTHER_ID)))["sessions"]
    assert {name: session["steps"] for name, session in result.items()} == {SESSION_ID: ALL, OTHER_ID: ALL}
    # All have claimed by then, in their order.
    assert claims == [2, 2]
    assert [given.plan.id for step, given, _dry in agent.calls if step == "claim"] == [SESSION_ID, OTHER_ID]


def test_lost_output_of_replaced_containers_is_in_the_result(agent: Agent) -> None:
    agent.lost = {"main1": "no room"}
    result = result_of("start", options_for(session_request(ALL)))["sessions"][SESSION_ID]
    assert (result["steps"], result["lost_output"]) == (ALL, ["main1: no room"])


def test_session_that_takes_long_is_left_after_its_patience(agent: Agent) -> None:
    agent.is_ready = False
    request = {**session_request(ALL, of=BATCH), "patience": 15}
    result = result_of("start", options_for(request))["sessions"][SESSION_ID]
    assert (result["steps"], result["starting"]) == (["claim", "apply"], True)
    assert [given.patience for step, given, _dry in agent.calls if step == "apply"] == [15]
    later = result_of("start", options_for(session_request(["ready", "commit", "command"], of=BATCH)))
    assert later["sessions"][SESSION_ID] == {"steps": ["ready", "commit", "command"], "containers": RUNNING}
    assert ("ready", (SESSION_ID, "n"), False) in agent.calls


def test_what_a_container_printed_is_apart_from_the_failure(agent: Agent) -> None:
    error = ClusterError("container main1 ended while it started")
    error.printed = ("main1: password=hunter2",)
    agent.errors["apply", SESSION_ID] = error
    result = result_of("start", options_for(session_request(ALL)))["sessions"][SESSION_ID]
    assert (result["failed"], result["printed"]) == (
        "container main1 ended while it started.",
        ["main1: password=hunter2"],
    )


def test_unexpected_error_has_a_traceback(agent: Agent) -> None:
    agent.errors["apply", SESSION_ID] = KeyError("slots")
    assert reply_of("start", options_for(session_request(ALL)))["traceback"].endswith("KeyError: 'slots'\n")


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
@pytest.mark.parametrize("step", ALL)
def test_stopped_engine_fails_with_one_sentence(tmp_path: Path, step: str, check_mode: bool) -> None:
    request = options_for(session_request([step]), state_path=str(tmp_path))
    sentence = failure_of("start", request, check_mode=check_mode)
    assert sentence.startswith(f"the Docker engine at {NOWHERE} does not answer the Docker SDK for Python ")
    assert sentence.endswith(": start docker on this host, or run backendai.cluster.provision_agents on this host.")
    assert list(tmp_path.iterdir()) == []


# ---- the command, in a real store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Return the store of a provisioned agent."""
    monkeypatch.setattr(start, "connect", lambda _address: None)
    (tmp_path / "sessions").mkdir()
    (tmp_path / "lock").touch()
    return Store(str(tmp_path))


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
def test_command_is_started_once_and_not_in_check_mode(store: Store, tmp_path: Path, check_mode: bool) -> None:
    store.save(held(BATCH))
    folder = store.kernel_folder(SESSION_ID, "main1")
    folder.mkdir()
    request = options_for({**session_request(["command"], of=BATCH), "nonce": "nonce-1"}, state_path=str(tmp_path))
    result = result_of("start", request, check_mode=check_mode)
    assert result["changed"] is not check_mode
    assert result["diff"]["after"] == ("" if check_mode else "command of train-llm in main1: started\n")
    assert (folder / "go").exists() is not check_mode
    assert result_of("start", request)["changed"] is check_mode


def test_command_of_an_unknown_session_fails_with_one_sentence(store: Store, tmp_path: Path) -> None:
    result = result_of("start", options_for(session_request(["command"]), state_path=str(tmp_path)))
    assert store.sessions() == []
    assert result["sessions"][SESSION_ID] == {
        "steps": [],
        "failed": f"the session {SESSION_ID} is not claimed on this agent: its claim expired, or was removed.",
    }
