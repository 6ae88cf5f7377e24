"""Looks at the sessions of an agent that may end by time."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import DockerUnavailableError
from ansible_collections.backendai.cluster.plugins.module_utils._host.local_session import LocalSession
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import PinnedResources
from ansible_collections.backendai.cluster.plugins.module_utils._network.sockets import Socket
from ansible_collections.backendai.cluster.plugins.module_utils._session import look
from ansible_collections.backendai.cluster.plugins.module_utils._session.look import look_at_sessions, read_times
from ansible_collections.backendai.cluster.plugins.module_utils._session.use import begin_use, read_use
from tests.unit.builders import SESSION_ID, held, own_labels, plan
from tests.unit.uptime import Uptime, uptime_of_numbers

TIMED = plan({"agent1": 2}, idle_timeout=600, max_lifetime=3600)
USER, HERE = "0A00000A", "0100007F"


@dataclasses.dataclass
class Agent:
    """An agent with the figures of its containers: of every process, and the text that terminals got."""

    store: Store
    engine: Any
    uptime: Uptime
    cpu: float | None = 1.0
    accepted: int = 0
    connections: list[Socket] = dataclasses.field(default_factory=list)
    gpus: set[str] | None = None
    told: list[str] = dataclasses.field(default_factory=list)

    def seconds(self) -> float:
        """Return the CPU time of a container; raises :class:`OSError` without one."""
        if self.cpu is None:
            raise OSError(2, "No such file or directory")
        return self.cpu

    def begin(self, session: LocalSession) -> LocalSession:
        """Let a session begin, look at it once, and let half a minute pass."""
        self.store.save(session)
        for kernel in session.kernels:
            bears = own_labels(kernel.hostname)
            found = {
                "Id": kernel.hostname,
                "Names": [f"/backendai-train-llm-{kernel.hostname}"],
                "Labels": bears,
                "State": "running",
            }
            self.engine.made.append(found)
            self.store.kernel_folder(SESSION_ID, kernel.hostname).mkdir(parents=True)
        begin_use(self.store, session)
        self.look(session)
        self.uptime.up += 30
        return session

    def look(self, session: LocalSession) -> float:
        """Look at the session, and return how long it has been idle."""
        assert look_at_sessions(self.store, lambda: self.engine, [session]) == []
        use = read_use(self.store, SESSION_ID)
        return use.idle if use else -1


@pytest.fixture
def agent(store: Store, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "host").mkdir()
    with uptime_of_numbers(tmp_path / "host") as uptime:
        made = Agent(store, engine, uptime)
        monkeypatch.setattr(look.containers, "pid_of", lambda _client, name: {"main1": 7, "sub1": 8}[name])
        monkeypatch.setattr(look, "cpu_seconds", lambda _pid: made.seconds())
        monkeypatch.setattr(look, "accepted_connections", lambda _pid: made.accepted)
        monkeypatch.setattr(look, "sockets", lambda _protocol, _proc: made.connections)
        monkeypatch.setattr(look, "working_gpus", lambda: made.gpus)
        monkeypatch.setattr(look, "write_to_terminals", lambda pid, text: made.told.append(f"{pid}: {text}"))
        yield made


def connection(port: int, remote: str = USER) -> Socket:
    return Socket("0A00000B", port, listening=False, inode="1", established=True, remote=remote)


def test_a_session_that_nobody_uses_is_idle(agent: Agent) -> None:
    session = agent.begin(held(TIMED))
    assert agent.look(session) == 30
    agent.uptime.up += 12
    assert read_times(agent.engine, agent.store, session) == (42, 30)


@pytest.mark.parametrize(
    ("change", "idle"),
    [
        ({"cpu": 3.0}, 0),
        ({"cpu": 1.1}, 30),
        ({"accepted": 1}, 0),
        ({"connections": [connection(22)]}, 0),
        ({"connections": [connection(22, HERE)]}, 30),
        ({"connections": [connection(8888)]}, 30),
    ],
    ids=["work", "little work", "a request", "a login", "a login of its own", "a client of another server"],
)
def test_what_the_kernel_reports_is_use(agent: Agent, change: dict[str, Any], idle: float) -> None:
    session = agent.begin(held(TIMED))
    for name, value in change.items():
        setattr(agent, name, value)
    assert agent.look(session) == idle


@pytest.mark.parametrize(
    ("change", "idle"),
    [({}, 640), ({"connections": [connection(22)]}, 0), ({"cpu": None}, 0)],
    ids=["still idle", "somebody came back", "it cannot be seen"],
)
def test_before_an_idle_session_ends_it_is_looked_at_again(agent: Agent, change: dict[str, Any], idle: int) -> None:
    session = agent.begin(held(TIMED))
    for _look in range(21):
        agent.look(session)
        agent.uptime.up += 30
    agent.uptime.up -= 20
    for name, value in change.items():
        setattr(agent, name, value)
    assert read_times(agent.engine, agent.store, session)[1] == idle
    use = read_use(agent.store, SESSION_ID)
    assert use
    assert use.idle == 630


def test_a_command_is_use_as_long_as_it_runs(agent: Agent) -> None:
    assert agent.look(agent.begin(held(plan({"agent1": 1}, idle_timeout=600, command="python train.py")))) == 0


@pytest.mark.parametrize(
    ("devices", "working", "idle"),
    [
        (["GPU-1"], {"GPU-1"}, 0),
        (["GPU-1"], {"GPU-2"}, 30),
        (["GPU-1"], None, 0),
        (["MIG-1"], set(), 0),
        (["/dev/fake0"], None, 30),
    ],
    ids=["it works", "another one works", "it cannot be read", "an instance cannot be read", "it is not NVIDIA's"],
)
def test_a_working_gpu_is_use(agent: Agent, devices: list[str], working: set[str] | None, idle: float) -> None:
    agent.gpus = working
    assert (
        agent.look(agent.begin(held(TIMED, pinned={"main1": PinnedResources([0], {"cuda.device": devices})}))) == idle
    )


def test_terminals_hear_once_of_the_end(agent: Agent) -> None:
    session = agent.begin(held(TIMED))
    agent.uptime.up += 3270
    agent.look(session)
    assert agent.told == [f"{pid}: backendai: the session train-llm ends in 5 min: save your work." for pid in (7, 8)]
    agent.uptime.up += 30
    agent.look(session)
    assert len(agent.told) == 2


def test_logins_can_read_when_the_session_ends(agent: Agent) -> None:
    session = agent.begin(held(TIMED))
    path = agent.store.kernel_folder(SESSION_ID, "main1") / "ends"
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("4600\n", 0o640)
    agent.uptime.reboot(50.0)
    agent.look(session)
    assert path.read_text() == "3650\n"


def test_sessions_without_limits_are_not_looked_at(agent: Agent) -> None:
    session = agent.begin(held(plan({"agent1": 2})))
    assert (agent.look(session), read_times(agent.engine, agent.store, session)) == (-1, (None, None))


@pytest.mark.parametrize("damage", ["{", '{"version": 3, "boot": "b", "uptime": 1, "lived": 1e300}'])
def test_a_damaged_count_begins_anew(agent: Agent, damage: str) -> None:
    session = agent.begin(held(TIMED))
    (agent.store.folder(SESSION_ID) / "use.json").write_text(damage)
    assert read_times(agent.engine, agent.store, session) == (None, None)
    assert agent.look(session) == 0


def test_an_engine_that_does_not_answer_is_reported_elsewhere(agent: Agent) -> None:
    session = agent.begin(held(TIMED))

    def connect() -> Any:
        raise DockerUnavailableError("the engine does not answer.")

    assert look_at_sessions(agent.store, connect, [session]) == []


def test_what_cannot_be_seen_is_a_failure_of_that_session_only(agent: Agent) -> None:
    session = agent.begin(held(TIMED))
    agent.cpu = None
    (failure,) = look_at_sessions(agent.store, lambda: agent.engine, [session])
    assert failure.startswith("train-llm: its use cannot be seen: ")


def test_a_session_that_a_run_works_on_is_left_out(agent: Agent) -> None:
    session = agent.begin(held(TIMED))
    with agent.store.session_lock(SESSION_ID):
        assert agent.look(session) == 0
