"""The command of a batch session, and reaping of sessions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from docker.errors import APIError

from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import Image
from ansible_collections.backendai.cluster.plugins.module_utils._host.local_session import LocalSession
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import NetworkError
from ansible_collections.backendai.cluster.plugins.module_utils._session import command
from ansible_collections.backendai.cluster.plugins.module_utils._session import remove as removing
from ansible_collections.backendai.cluster.plugins.module_utils._session.claim_guard import ClaimLostError
from ansible_collections.backendai.cluster.plugins.module_utils._session.command import start_command, wait_for_end
from ansible_collections.backendai.cluster.plugins.module_utils._session.contents import RenderedFiles, desired_slice
from ansible_collections.backendai.cluster.plugins.module_utils._session.end import SessionEnd
from ansible_collections.backendai.cluster.plugins.module_utils._session.host_capabilities import HostCapabilities
from ansible_collections.backendai.cluster.plugins.module_utils._session.reap import ReapResult, reap
from tests.unit.builders import IMAGE, SESSION_ID, held, own_labels, plan, public_keys
from tests.unit.fake_docker import FakeDocker
from tests.unit.fake_network import FakeNetwork

MADE = plan({"agent1": 2, "agent2": 1})
BATCH = plan({"agent1": 2, "agent2": 1}, command="python train.py")
STARTED = [Change("command of train-llm in main1", None, "started")]
FOR_ALL = plan({"agent1": 2, "agent2": 1}, command="python train.py", command_scope="all")
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
OTHER = dataclasses.replace(MADE, id=OTHER_ID, name="train-other")
MAIN1, SUB1 = "container backendai-train-llm-main1", "container backendai-train-llm-sub1"
NETWORK = MADE.network
assert NETWORK
RULES = Change("firewall table inet backendai", None, "there")
LINK = Change(f"link {NETWORK.link}", None, f"vni {NETWORK.vni}, mtu 1450, 1 remote containers")
ENDED = [Change(MAIN1, "exited", None), Change(SUB1, "exited", None), Change("session train-llm", "held", None)]
REMOVED = [Change(MAIN1, "running", None), Change(SUB1, "running", None), Change("session train-llm", "held", None)]


class Mortal(FakeDocker):
    """An engine with containers that end, and that may refuse to start one."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[str] = []

    def run(self, of: SessionPlan, *hostnames: str, state: str = "running") -> None:
        for hostname in hostnames:
            bears = own_labels(hostname, of.id)
            name = f"backendai-{of.name}-{hostname}"
            self.made.append({"Id": f"id-{name}", "Names": [f"/{name}"], "Labels": bears, "State": state})

    def end(self, container: str, exit_code: int) -> None:
        self._container(container).update(State="exited", ExitCode=exit_code, FinishedAt="2026-11-20T15:22:01.5Z")

    def start(self, container: str) -> None:
        if container in self.refused:
            raise APIError("500 Server Error", explanation="no such\nnetwork")
        super().start(container)


@pytest.fixture
def engine() -> Any:
    """Return an engine without containers."""
    return Mortal()


class Clock:
    """A clock that advances only in sleep; ``happens`` has the events by second."""

    def __init__(self) -> None:
        self.now = 0.0
        self.happens: dict[float, Callable[[], Any]] = {}

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.happens.get(self.now, int)()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the fake clock."""
    clock = Clock()
    monkeypatch.setattr(command.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(command.time, "sleep", clock.sleep)
    return clock


def run_reap(
    engine: Any, store: Store, end: tuple[str, ...] = (), restart: tuple[str, ...] = (), **how: Any
) -> ReapResult:
    return reap(
        engine, store, {one: SessionEnd() for one in end}, restart, **{"expired": True, "check_mode": False, **how}
    )


@pytest.mark.parametrize(
    ("session", "files"),
    [
        (held(BATCH), [("main1", "python train.py", 0o640)]),
        (held(BATCH, "agent2"), []),
        (held(MADE), []),
        (held(FOR_ALL), [("main1", "python train.py", 0o640), ("sub1", "python train.py", 0o640)]),
    ],
    ids=["main1 and sub1", "sub2", "a session without a command", "a command for all"],
)
def test_command_file_exists_only_where_the_command_runs(
    store: Store, session: LocalSession, files: list[tuple[str, str, int]]
) -> None:
    hostnames = [kernel.hostname for kernel in MADE.kernels]
    contents = RenderedFiles("", "", {name: {} for name in hostnames}, public_keys(MADE), ())
    desired = desired_slice(store, session, contents, {IMAGE: Image("", {})}, "backendai-default", HostCapabilities())
    commands = [file for file in desired.files if file.path.name == "command"]
    assert [(file.path.parent.name, file.content, file.mode) for file in commands] == files


def test_a_command_is_started_once(store: Store) -> None:
    store.save(held(BATCH))
    folder = store.kernel_folder(SESSION_ID, "main1")
    folder.mkdir()
    assert start_command(store, SESSION_ID, "nonce-1", check_mode=False) == [
        Change("command of train-llm in main1", None, "started")
    ]
    assert (folder / "go").stat().st_mode & 0o777 == 0o600
    assert start_command(store, SESSION_ID, "nonce-1", check_mode=False) == []


def test_a_command_for_all_is_started_in_every_container_once(store: Store) -> None:
    store.save(held(FOR_ALL))
    for hostname in ("main1", "sub1"):
        store.kernel_folder(SESSION_ID, hostname).mkdir()
    store.start_marker(SESSION_ID, "main1").touch()
    started = [Change("command of train-llm in sub1", None, "started")]
    assert start_command(store, SESSION_ID, "nonce-1", check_mode=False) == started
    assert store.started_commands(held(FOR_ALL)) == {"main1", "sub1"}
    assert start_command(store, SESSION_ID, "nonce-1", check_mode=False) == []


def test_a_command_is_not_started_in_check_mode(store: Store) -> None:
    store.save(held(BATCH))
    store.kernel_folder(SESSION_ID, "main1").mkdir()
    assert start_command(store, SESSION_ID, "nonce-1", check_mode=True) == [
        Change("command of train-llm in main1", None, "started")
    ]
    assert list(store.kernel_folder(SESSION_ID, "main1").iterdir()) == []


@pytest.mark.parametrize(
    "session", [held(MADE), held(BATCH, "agent2")], ids=["a session without a command", "an agent without main1"]
)
def test_nothing_is_started_without_a_command(store: Store, session: LocalSession) -> None:
    store.save(session)
    store.kernel_folder(SESSION_ID, "main1").mkdir()
    assert start_command(store, SESSION_ID, "nonce-1", check_mode=False) == []
    assert list(store.kernel_folder(SESSION_ID, "main1").iterdir()) == []


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (None, f"the session {SESSION_ID} is not claimed on this agent: its claim expired, or was removed"),
        (
            {"nonce": "nonce-2", "expires_at": 9e12},
            "session_name: 'train-llm' was taken over by a later run, so this one stops",
        ),
        (
            {"expires_at": 9e12},
            "session_name: 'train-llm' is not committed on this agent, so its command may not start yet",
        ),
    ],
    ids=["removed", "taken over", "not committed"],
)
def test_command_is_refused_before_the_commit(store: Store, state: dict[str, Any] | None, sentence: str) -> None:
    if state:
        store.save(held(BATCH, **state))
    with pytest.raises(ClaimLostError) as refused:
        start_command(store, SESSION_ID, "nonce-1", check_mode=False)
    assert str(refused.value) == sentence


def record_main1(store: Store) -> None:
    """Let the agent have the session, and the id of its main1."""
    store.save(held(BATCH))
    store.container_ids(SESSION_ID).record("main1", "id-backendai-train-llm-main1")


def test_end_of_main1_returns_its_exit_code(engine: Any, store: Store) -> None:
    record_main1(store)
    engine.run(BATCH, "main1", "sub1")
    engine.end("id-backendai-train-llm-main1", 3)
    assert wait_for_end(engine, store, SESSION_ID, 60) == (True, 3)


@pytest.mark.parametrize("state", ["running", "created"])
def test_wait_ends_after_its_timeout(engine: Any, store: Store, clock: Clock, state: str) -> None:
    record_main1(store)
    engine.run(BATCH, "main1", state=state)
    engine.run(BATCH, "sub1", state="exited")
    engine.run(OTHER, "main1", state="exited")
    assert wait_for_end(engine, store, SESSION_ID, 1.75) == (False, None)
    assert clock.now == 1.75


def test_a_wait_ends_with_the_command(engine: Any, store: Store, clock: Clock) -> None:
    record_main1(store)
    engine.run(BATCH, "main1")
    clock.happens[2.0] = lambda: engine.end("id-backendai-train-llm-main1", 143)
    assert wait_for_end(engine, store, SESSION_ID, 60) == (True, 143)
    assert clock.now == 2.0


def test_missing_container_has_ended_without_an_exit_code(engine: Any, store: Store, clock: Clock) -> None:
    record_main1(store)
    engine.run(BATCH, "main1")
    clock.happens[1.0] = engine.made.clear
    assert wait_for_end(engine, store, SESSION_ID, 60) == (True, None)
    assert wait_for_end(engine, store, SESSION_ID, 60) == (True, None)
    assert clock.now == 1.0


def test_container_removed_during_a_read_has_ended(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    record_main1(store)
    engine.run(BATCH, "main1", state="exited")
    listed = engine.containers

    def list_and_lose(**filters: Any) -> Any:
        containers = listed(**filters)
        engine.made.clear()
        return containers

    monkeypatch.setattr(engine, "containers", list_and_lose)
    assert wait_for_end(engine, store, SESSION_ID, 60) == (True, None)


@pytest.mark.parametrize("state", [{}, {"expires_at": 9e12}, {"expires_at": 1.0}], ids=["committed", "claimed", "over"])
def test_sessions_to_end_are_removed_in_any_state(engine: Any, store: Store, state: dict[str, Any]) -> None:
    store.save(held(MADE, **state))
    store.save(held(OTHER))
    engine.run(MADE, "main1", "sub1")
    engine.run(OTHER, "main1", "sub1")
    assert run_reap(engine, store, (SESSION_ID,)) == ReapResult(ENDED, {})
    assert [session.plan.id for session in store.sessions()] == [OTHER_ID]
    assert len(engine.made) == 2
    assert run_reap(engine, store, (SESSION_ID,)) == ReapResult([], {})


def test_only_expired_claims_are_removed_without_request(engine: Any, store: Store) -> None:
    store.save(held(MADE, expires_at=1.0))
    store.save(held(OTHER, expires_at=9e12))
    engine.run(MADE, "main1", "sub1")
    assert run_reap(engine, store, expired=False) == ReapResult([], {})
    assert run_reap(engine, store) == ReapResult(REMOVED, {})
    assert [session.plan.id for session in store.sessions()] == [OTHER_ID]


@pytest.mark.parametrize("state", [{}, {"nonce": "nonce-2", "expires_at": 9e12}], ids=["committed", "claimed anew"])
def test_claim_renewed_meanwhile_is_kept(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch, state: dict[str, Any]
) -> None:
    sessions = [held(MADE, expires_at=1.0)]
    store.save(held(MADE, **state))
    monkeypatch.setattr(store, "sessions", lambda: sessions)
    assert run_reap(engine, store) == ReapResult([], {})
    assert store.session(SESSION_ID) == held(MADE, **state)


def test_dead_containers_are_restarted_after_their_link(engine: Any, store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    engine.run(MADE, "main1")
    engine.run(MADE, "sub1", state="exited")
    assert run_reap(engine, store, restart=(SESSION_ID,)) == ReapResult(
        [RULES, LINK, Change(SUB1, "exited", "running")], {}
    )
    assert engine.calls == ["start id-backendai-train-llm-sub1"]
    assert len(kernel.links) == 1
    assert run_reap(engine, store, restart=(SESSION_ID,)) == ReapResult([], {})


def test_single_container_session_is_restarted_without_a_link(engine: Any, store: Store, kernel: FakeNetwork) -> None:
    store.save(held(plan({"agent1": 1})))
    engine.run(MADE, "main1", state="created")
    assert run_reap(engine, store, restart=(SESSION_ID,)) == ReapResult(
        [RULES, Change(MAIN1, "created", "running")], {}
    )
    assert kernel.links == set()


def test_main1_of_a_batch_session_is_not_restarted(engine: Any, store: Store) -> None:
    store.save(held(BATCH))
    engine.run(BATCH, "main1", "sub1", state="exited")
    assert run_reap(engine, store, restart=(SESSION_ID,)) == ReapResult(
        [RULES, LINK, Change(SUB1, "exited", "running")], {}
    )
    assert engine.calls == ["start id-backendai-train-llm-sub1"]


def test_a_command_that_has_begun_is_not_run_again_by_a_restart(engine: Any, store: Store) -> None:
    store.save(held(FOR_ALL))
    engine.run(FOR_ALL, "main1", "sub1", state="exited")
    store.kernel_folder(SESSION_ID, "sub1").mkdir()
    store.start_marker(SESSION_ID, "sub1").touch()
    run_reap(engine, store, restart=(SESSION_ID,))
    assert engine.calls == []


def test_restart_failure_is_reported_and_the_rest_restarted(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    engine.run(MADE, "sub1", state="exited")
    assert run_reap(engine, store, restart=(SESSION_ID,)) == ReapResult(
        [RULES, LINK, Change(SUB1, "exited", "running")],
        {SESSION_ID: "main1 was removed on agent1 and cannot be restarted"},
    )


def test_engine_error_on_start_is_reported(engine: Any, store: Store) -> None:
    store.save(held(plan({"agent1": 3})))
    engine.run(MADE, "sub1", "sub2", state="exited")
    engine.refused = ["id-backendai-train-llm-sub1"]
    assert run_reap(engine, store, restart=(SESSION_ID,)) == ReapResult(
        [RULES, Change("container backendai-train-llm-sub2", "exited", "running")],
        {SESSION_ID: "main1 was removed on agent1 and cannot be restarted; sub1 cannot be restarted: no such network"},
    )


def test_no_container_starts_if_its_link_fails(
    engine: Any, store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batch(_tool: str, _lines: list[str], _pid: int | None = None) -> None:
        raise NetworkError("ip -batch: Device does not exist")

    monkeypatch.setattr(kernel, "batch", batch)
    store.save(held(MADE))
    engine.run(MADE, "main1", state="exited")
    assert run_reap(engine, store, restart=(SESSION_ID,)) == ReapResult(
        [], {SESSION_ID: "ip -batch: Device does not exist"}
    )
    assert engine.calls == []


@pytest.mark.parametrize(
    ("unknown_id", "sentence"),
    [
        (OTHER_ID, f"the session {OTHER_ID} is not on this agent"),
        ("", "session_id: '' is not the id of a session"),
    ],
)
def test_unknown_session_is_a_failure_of_its_own(engine: Any, store: Store, unknown_id: str, sentence: str) -> None:
    store.save(held(MADE))
    engine.run(MADE, "main1", "sub1", state="exited")
    result = run_reap(engine, store, restart=(unknown_id, SESSION_ID))
    assert result.failures == {unknown_id: sentence}
    assert [container["State"] for container in engine.made] == ["running", "running"]


def test_no_id_ends_no_session(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    engine.run(MADE, "main1", "sub1")
    assert run_reap(engine, store, ("",)) == ReapResult([], {"": "session_id: '' is not the id of a session"})
    assert store.session(SESSION_ID) is not None
    assert len(engine.made) == 2


def test_corrupt_session_stops_no_other(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    store.folder(OTHER_ID).mkdir()
    (store.folder(OTHER_ID) / "session.json").write_text("{")
    result = run_reap(engine, store, (SESSION_ID,))
    assert result.changes == [Change("session train-llm", "held", None)]
    assert list(result.failures) == ["expired"]
    assert result.failures["expired"].startswith(f"{store.folder(OTHER_ID)}/session.json is damaged (")


def test_end_of_a_corrupt_session_needs_no_plan(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    engine.run(MADE, "main1", "sub1")
    for name in ("main1", "sub1"):
        store.container_ids(SESSION_ID).record(name, f"id-backendai-train-llm-{name}")
    (store.folder(SESSION_ID) / "session.json").write_text("{")
    result = run_reap(engine, store, (SESSION_ID,))
    assert result.changes[-1] == Change(f"session {SESSION_ID}", "held", None)
    assert (result.failures, engine.made, store.folder(SESSION_ID).exists()) == ({}, [], False)


def test_unprovisioned_agent_is_reported(engine: Any, store: Store) -> None:
    (store.folder(SESSION_ID).parent.parent / "lock").unlink()
    failure = run_reap(engine, store, (SESSION_ID,)).failures[SESSION_ID]
    assert failure.endswith("run backendai.cluster.provision_agents on this host.")


def test_unexpected_error_is_raised(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_container: str) -> None:
        raise KeyError("State")

    monkeypatch.setattr(engine, "start", start)
    store.save(held(MADE))
    engine.run(MADE, "main1", "sub1", state="exited")
    with pytest.raises(KeyError, match="State"):
        run_reap(engine, store, restart=(SESSION_ID,))


def test_check_mode_returns_all_changes_and_applies_none(engine: Any, store: Store, kernel: FakeNetwork) -> None:
    ended, expired = "11111111-3c0e-4f5e-9d0a-0f3c1d2e4b6a", "22222222-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
    store.save(held(MADE))
    store.save(held(dataclasses.replace(OTHER, id=ended, name="train-ended"), expires_at=1.0))
    store.save(held(dataclasses.replace(OTHER, id=expired, name="train-over"), expires_at=1.0))
    engine.run(MADE, "sub1", state="exited")
    result = run_reap(engine, store, (ended,), (SESSION_ID,), check_mode=True)
    assert result == ReapResult(
        [
            Change("session train-ended", "held", None),
            Change("session train-over", "held", None),
            RULES,
            LINK,
            Change(SUB1, "exited", "running"),
        ],
        {SESSION_ID: "main1 was removed on agent1 and cannot be restarted"},
    )
    assert (engine.calls, kernel.links) == ([], set())
    assert len(store.sessions()) == 3
    # Removal applies the rules before dead containers are restarted.
    changes = [change for change in result.changes if change != RULES]
    assert run_reap(engine, store, (ended,), (SESSION_ID,)) == ReapResult(changes, result.failures)


def test_homes_of_ended_and_expired_sessions_are_retired_and_their_removal_is_started(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(removing, "start_removal", lambda: started.append("removal"))
    store.save(held(MADE))
    store.save(held(OTHER, expires_at=1.0))
    for session_id in (SESSION_ID, OTHER_ID):
        store.homes.make(session_id, "main1", 12345, 23456)
    run_reap(engine, store, (SESSION_ID,), check_mode=True)
    assert (len(store.homes.session_ids()), started) == (2, [])
    assert run_reap(engine, store, (SESSION_ID,)).failures == {}
    assert (store.homes.session_ids(), started) == ([], ["removal"] * 2)
