"""The phases for existing sessions: remove, reap, wait, verify, logs and marker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import withdrawn
from ansible_collections.backendai.cluster.plugins.module_utils._host.local_session import LocalSession
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._host.withdrawn import is_withdrawn
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._program import session
from ansible_collections.backendai.cluster.plugins.module_utils._session.output import find_kept, keep_output
from ansible_collections.backendai.cluster.plugins.module_utils._session.ownership import OwnContainers
from ansible_collections.backendai.cluster.plugins.module_utils._session.reply_logs import ReplyLogs
from tests.unit.builders import SESSION_ID, held, own_labels, plan
from tests.unit.fake_docker import FakeDocker
from tests.unit.fake_network import patch_network
from tests.unit.phases import NOWHERE, failure_of, result_of

BATCH = plan({"agent1": 1}, command="python train.py")
LOST = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
DOWN = f"the Docker engine at {NOWHERE} does not answer the Docker SDK for Python "


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the options of a provisioned agent with a stopped engine."""
    monkeypatch.setattr(withdrawn, "FOLDER", tmp_path / "withdrawn")
    (tmp_path / "sessions").mkdir()
    (tmp_path / "lock").touch()
    return {"docker_host": NOWHERE, "state_path": str(tmp_path)}


@pytest.fixture
def store(agent: dict[str, Any]) -> Store:
    """Return the store of the agent."""
    return Store(agent["state_path"])


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeDocker:
    """Return the running engine of the agent."""
    engine = FakeDocker()
    monkeypatch.setattr(session, "connect", lambda address: engine if address == NOWHERE else None)
    patch_network(monkeypatch)
    return engine


def exited_main1() -> dict[str, Any]:
    """Return the container of main1, whose command has ended."""
    names = ["/backendai-train-llm-main1"]
    return {"Id": "id-main1", "Names": names, "Labels": own_labels("main1"), "State": "exited", "Log": []}


CHECK_MODE = pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])


# ---- remove, reap and wait


@CHECK_MODE
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(("nonce", "removed"), [("nonce-1", True), ("another", False), (None, True)])
def test_part_is_removed_if_the_nonce_matches_or_is_none(
    agent: dict[str, Any], store: Store, nonce: str | None, removed: bool, check_mode: bool
) -> None:
    store.save(held(BATCH))
    options = {**agent, "sessions": [{"id": SESSION_ID, "nonce": nonce}]}
    assert result_of("remove", options, check_mode=check_mode) == {
        "changed": removed,
        "diff": {"before": "session train-llm: held\n" if removed else "", "after": ""},
        "sessions": {SESSION_ID: {}},
    }
    assert (store.session(SESSION_ID) is None) is (removed and not check_mode)


@pytest.mark.usefixtures("engine")
def test_failed_removal_stops_no_other(agent: dict[str, Any], store: Store) -> None:
    store.save(held(BATCH))
    (store.folder(LOST)).mkdir()
    (store.folder(LOST) / "session.json").write_text("{")
    # Whether this run has claimed it is not known.
    sessions = [{"id": LOST, "nonce": "n"}, {"id": SESSION_ID, "nonce": None}]
    result = result_of("remove", {**agent, "sessions": sessions})
    assert "session.json is damaged" in result["sessions"][LOST]["failed"]
    assert result["sessions"][LOST]["failed"].endswith(".")
    assert (result["sessions"][SESSION_ID], store.session(SESSION_ID)) == ({}, None)


@CHECK_MODE
@pytest.mark.usefixtures("engine")
def test_failure_of_one_session_does_not_fail_the_reap(agent: dict[str, Any], store: Store, check_mode: bool) -> None:
    store.save(held(BATCH))
    result = result_of("reap", {**agent, "end": [SESSION_ID], "restart": [LOST]}, check_mode=check_mode)
    assert result == {
        "changed": True,
        "diff": {"before": "session train-llm: held\n", "after": ""},
        "failures": {LOST: f"the session {LOST} is not on this agent"},
        "ends": {SESSION_ID: {}},
    }
    assert (store.session(SESSION_ID) is not None) is check_mode


@CHECK_MODE
@pytest.mark.usefixtures("engine")
def test_what_a_start_has_claimed_before_it_is_withdrawn_stays(
    agent: dict[str, Any], store: Store, check_mode: bool
) -> None:
    store.save(held(BATCH, nonce="n"))
    asked = {"end": [], "restart": [], "withdraw": {SESSION_ID: "n"}}
    result = result_of("reap", {**agent, **asked}, check_mode=check_mode)
    assert result == {"changed": False, "diff": {"before": "", "after": ""}, "failures": {}, "ends": {}}
    assert store.session(SESSION_ID) is not None
    assert is_withdrawn("n") is not check_mode
    assert not is_withdrawn(SESSION_ID)


@pytest.mark.usefixtures("engine")
def test_a_start_that_cannot_be_withdrawn_is_a_failure_of_its_session(
    agent: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(withdrawn, "FOLDER", tmp_path / "file" / "withdrawn")
    result = result_of("reap", {**agent, "end": [], "restart": [], "withdraw": {SESSION_ID: "n"}})
    assert result["failures"] == {SESSION_ID: f"[Errno 20] Not a directory: '{tmp_path}/file/withdrawn'"}


@CHECK_MODE
@pytest.mark.usefixtures("engine")
def test_expired_claims_are_removed_by_the_reap(agent: dict[str, Any], store: Store, check_mode: bool) -> None:
    store.save(held(BATCH, expires_at=1.0))
    result = result_of("reap", {**agent, "end": [], "restart": []}, check_mode=check_mode)
    assert (result["changed"], result["failures"]) == (True, {})
    assert (store.session(SESSION_ID) is not None) is check_mode


@pytest.mark.parametrize(
    ("phase", "options"),
    [("remove", {"sessions": [{"id": SESSION_ID, "nonce": None}]}), ("reap", {"end": [SESSION_ID], "restart": []})],
)
def test_output_is_kept_for_the_days_that_the_run_gives(
    agent: dict[str, Any], store: Store, engine: FakeDocker, phase: str, options: dict[str, Any]
) -> None:
    engine.made.append(exited_main1())
    store.save(held(BATCH))
    result_of(phase, {**agent, **options, "history_days": 7})
    kept = find_kept(store, SESSION_ID)
    assert kept
    assert kept.expires_at - kept.ended_at == 7 * 86400


@CHECK_MODE
@pytest.mark.usefixtures("engine")
def test_missing_container_has_ended(agent: dict[str, Any], check_mode: bool) -> None:
    options = {**agent, "session_id": SESSION_ID, "timeout": 60}
    assert result_of("wait", options, check_mode=check_mode) == {"ended": True, "exit_code": None}


def test_wait_uses_the_requested_timeout(
    agent: dict[str, Any], engine: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(client: FakeDocker, at: Store, session_id: str, seconds: float) -> tuple[bool, int | None]:
        assert (client, str(at.root), session_id, seconds) == (engine, agent["state_path"], SESSION_ID, 7)
        return False, None

    monkeypatch.setattr(session, "wait_for_end", wait)
    result = result_of("wait", {**agent, "session_id": SESSION_ID, "timeout": 7})
    assert result == {"ended": False, "exit_code": None}


# ---- verify and logs


def parts(phase: str, options: dict[str, Any], *, check_mode: bool = False) -> dict[str, Any]:
    return result_of(phase, {"session_id": SESSION_ID, "kernel": "", "lines": 100, **options}, check_mode=check_mode)


@CHECK_MODE
def test_the_part_of_that_id_is_verified(
    agent: dict[str, Any],
    store: Store,
    engine: FakeDocker,
    monkeypatch: pytest.MonkeyPatch,
    check_mode: bool,
) -> None:
    def verify(client: FakeDocker, agent_store: Store, of: LocalSession, seconds: int) -> dict[str, Any]:
        assert (client, agent_store.folder(SESSION_ID)) == (engine, store.folder(SESSION_ID))
        return {"verified": of.plan.name, "seconds": seconds}

    store.save(held(BATCH))
    monkeypatch.setattr(session, "verify_part", verify)
    expected = {"verified": "train-llm", "seconds": session.TIMEOUT_SECONDS}
    assert parts("verify", agent, check_mode=check_mode) == {"parts": [expected], "error": None}


@CHECK_MODE
def test_logs_of_the_part_of_that_id_are_read(
    agent: dict[str, Any],
    store: Store,
    engine: FakeDocker,
    monkeypatch: pytest.MonkeyPatch,
    check_mode: bool,
) -> None:
    def read_logs(
        client: FakeDocker, at: Store, of: LocalSession, kernel: str, lines: int, reply: ReplyLogs, since: Any
    ) -> dict[str, Any]:
        assert client is engine
        assert at.root == store.root
        assert isinstance(reply, ReplyLogs)
        return {"asked": [of.plan.name, kernel, lines, since]}

    store.save(held(BATCH, expires_at=1.0))
    monkeypatch.setattr(session, "read_logs", read_logs)
    options = dict(agent)
    assert parts("logs", options, check_mode=check_mode) == {
        "parts": [{"asked": ["train-llm", "", 100, None]}],
        "error": None,
    }
    result = parts("logs", {**options, "kernel": "sub1", "lines": 7, "since": 5}, check_mode=check_mode)
    assert result["parts"] == [{"asked": ["train-llm", "sub1", 7, 5]}]


def test_kept_output_is_read_unless_the_session_lives(agent: dict[str, Any], store: Store, engine: Any) -> None:
    engine.made.append(exited_main1())
    store.save(held(BATCH))
    keep_output(engine, store, held(BATCH), {"main1": engine.made[0]})
    (live,) = parts("logs", {**agent, "session_id": SESSION_ID})["parts"]
    store.remove(SESSION_ID)
    (ended,) = parts("logs", agent)["parts"]
    assert ("ended_at" in live, "ended_at" in ended, ended["id"]) == (False, True, SESSION_ID)


LOOKS = pytest.mark.parametrize("phase", ["verify", "logs"])


@LOOKS
def test_agent_without_the_session_needs_no_engine(agent: dict[str, Any], store: Store, phase: str) -> None:
    store.save(held(BATCH))
    for session_id in (LOST, ""):
        assert parts(phase, {**agent, "session_id": session_id}) == {"parts": [], "error": None}


@LOOKS
@CHECK_MODE
def test_agent_with_a_stopped_engine_returns_an_error(
    agent: dict[str, Any], store: Store, phase: str, check_mode: bool
) -> None:
    store.save(held(BATCH))
    result = parts(phase, {**agent, "session_id": SESSION_ID}, check_mode=check_mode)
    assert (result["parts"], result["error"].startswith(DOWN)) == ([], True)


@LOOKS
def test_unreadable_session_is_an_error(agent: dict[str, Any], store: Store, phase: str) -> None:
    store.save(held(BATCH))
    (store.folder(SESSION_ID) / "session.json").write_text("{")
    result = parts(phase, agent)
    assert result["parts"] == []
    assert "session.json is damaged" in result["error"]


# ---- marker


def marker_options(operation: str, agent: dict[str, Any]) -> dict[str, Any]:
    return {**agent, "session_id": SESSION_ID, "marker": "m", "operation": operation}


@pytest.mark.usefixtures("engine")
@CHECK_MODE
def test_check_mode_creates_no_marker(
    agent: dict[str, Any], store: Store, monkeypatch: pytest.MonkeyPatch, check_mode: bool
) -> None:
    acts: list[str] = []

    def acting(name: str, gives: Any) -> None:
        def act(_client: FakeDocker, own: OwnContainers, of: SessionPlan, marker: str) -> Any:
            assert own == {}, "none was created"
            acts.append(f"{name} {marker} of {of.name}")
            return gives

        monkeypatch.setattr(session.mount_markers, name, act)

    acting("create_marker", ["/data"])
    acting("find_markers", {"main1": {}})
    acting("remove_marker", ["/data"])
    store.save(held(BATCH))
    results = [
        result_of("marker", marker_options(operation, agent), check_mode=check_mode)
        for operation in ("create", "find", "remove")
    ]
    targets = [] if check_mode else ["/data"]
    assert results == [{"created": targets}, {"observed": {"main1": {}}}, {"leftover": targets}]
    expected = "m of train-llm"
    assert acts == (
        [f"find_markers {expected}"]
        if check_mode
        else [f"{act} {expected}" for act in ("create_marker", "find_markers", "remove_marker")]
    )


def test_marker_for_an_unknown_session_is_refused(agent: dict[str, Any]) -> None:
    assert failure_of("marker", marker_options("find", agent)) == f"the session {SESSION_ID} is not on this agent."


# ---- a stopped engine


@CHECK_MODE
@pytest.mark.parametrize(
    ("phase", "options"),
    [
        ("remove", {"sessions": [{"id": SESSION_ID, "nonce": None}]}),
        ("reap", {"end": [], "restart": []}),
        ("wait", {"session_id": SESSION_ID, "timeout": 1}),
        ("marker", {"session_id": SESSION_ID, "marker": "m", "operation": "find"}),
    ],
)
def test_stopped_engine_fails_with_one_sentence(
    agent: dict[str, Any], store: Store, phase: str, options: dict[str, Any], check_mode: bool
) -> None:
    store.save(held(BATCH))
    sentence = failure_of(phase, {**agent, **options}, check_mode=check_mode)
    assert sentence.startswith(DOWN)
    assert sentence.endswith(": start docker on this host, or run backendai.cluster.provision_agents on this host.")
