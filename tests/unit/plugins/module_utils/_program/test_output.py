"""The command of the unit that waits for the end of a session's command, as the launcher runs it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import threading
import time
from typing import Any, NoReturn

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import client, labels
from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import DockerUnavailableError
from ansible_collections.backendai.cluster.plugins.module_utils._host.command_ends import make_wake
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._program.main import command
from ansible_collections.backendai.cluster.plugins.module_utils._session import ended_commands
from ansible_collections.backendai.cluster.plugins.module_utils._session.container_states import read_end
from tests.unit import agent
from tests.unit.builders import SESSION_ID, held, plan
from tests.unit.fake_docker import FakeDocker

MADE = plan({"agent1": 1}, command="python train.py")
OTHER = dataclasses.replace(MADE, id="00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a", name="hostile")
ADDRESS = "unix:///engine.sock"

engine, kernel, store = agent.engine, agent.kernel, agent.store


@pytest.fixture(autouse=True)
def connected(monkeypatch: pytest.MonkeyPatch, engine: FakeDocker) -> None:
    """Connect the program to the fake engine, whose containers end by themselves."""
    monkeypatch.setattr(client, "connect", lambda address: engine if address == ADDRESS else None)
    monkeypatch.setattr(ended_commands, "_await_stop", lambda *_asked: None)


def begin(store: Store, engine: FakeDocker, made: Any) -> int:
    """Let a session run its command; return the pipe as its first process has it open."""
    store.save(held(made))
    folder = store.kernel_folder(made.id, "main1")
    folder.mkdir()
    store.homes.make(made.id, "main1", os.getuid(), os.getgid())
    make_wake(folder)
    (folder / "go").touch()
    bears = {labels.OWNER: labels.OWNER_VALUE, labels.SESSION_ID: made.id, labels.HOSTNAME: "main1"}
    engine.made.append({"Id": f"id-{made.id}", "Names": ["/main1"], "Labels": bears, "State": "running"})
    store.container_ids(made.id).record("main1", f"id-{made.id}")
    return os.open(folder / "wake", os.O_RDWR)


def run(store: Store, session_id: str) -> int:
    return command(["--state-path", str(store.root), "--docker-host", ADDRESS, "--output", session_id])


def end(store: Store, pipe: int, session_id: str = SESSION_ID) -> None:
    (store.homes.folder(session_id, "main1") / "own" / "exit-code").write_text("7\n")
    os.write(pipe, b"\n")


def test_it_ends_once_the_command_has_ended_and_all_is_kept(store: Store, engine: FakeDocker) -> None:
    pipe = begin(store, engine, MADE)
    threading.Timer(0.3, end, [store, pipe]).start()
    assert run(store, SESSION_ID) == 0
    kept = read_end(store, SESSION_ID, "main1")
    assert kept
    assert (kept.state and kept.state.exit_code) == 7


def test_a_session_that_writes_into_its_pipe_all_the_time_delays_no_other(store: Store, engine: FakeDocker) -> None:
    hostile, honest = begin(store, engine, OTHER), begin(store, engine, MADE)
    flood = subprocess.Popen(["sh", "-c", f"exec yes > {store.kernel_folder(OTHER.id, 'main1')}/wake"])
    try:
        threads = [threading.Thread(target=run, args=[store, each.id], daemon=True) for each in (OTHER, MADE)]
        for thread in threads:
            thread.start()
        time.sleep(1)
        began = time.monotonic()
        end(store, honest)
        threads[1].join(2)
        assert (read_end(store, SESSION_ID, "main1") is not None, time.monotonic() - began < 2) == (True, True)
        assert read_end(store, OTHER.id, "main1") is None
    finally:
        flood.kill()
        flood.wait()
    # Its own end counts, too.
    end(store, hostile, OTHER.id)
    threads[0].join(5)
    assert read_end(store, OTHER.id, "main1")


def test_a_session_without_a_command_that_waits_is_left_at_once(store: Store) -> None:
    assert run(store, SESSION_ID) == 0
    store.save(held(MADE))
    assert run(store, SESSION_ID) == 0


@pytest.mark.parametrize("problem", ["engine", "homes"])
def test_what_cannot_be_kept_is_said_and_the_container_goes_on(
    store: Store,
    engine: FakeDocker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    problem: str,
) -> None:
    def refuse(_docker_host: str) -> NoReturn:
        raise DockerUnavailableError("the engine does not answer.")

    pipe = begin(store, engine, MADE)
    end(store, pipe)
    if problem == "engine":
        monkeypatch.setattr(client, "connect", refuse)
        said = "the engine does not answer"
    else:
        store.homes_link.unlink()
        os.close(pipe)
        engine.made[0].update(State="exited", ExitCode=7, FinishedAt="2026-03-01T03:00:00.5Z")
        (store.root / "output").touch()
        said = "cannot be written (File exists)"
    assert run(store, SESSION_ID) == 1
    assert f"<3>{SESSION_ID}: what its command left cannot be kept: " in (printed := capsys.readouterr().err)
    assert said in printed
    assert read_end(store, SESSION_ID, "main1") is None
