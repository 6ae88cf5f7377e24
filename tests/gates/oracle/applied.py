"""Seeded sessions, applied with the fake engine and network of the unit tests: a file for pytest, in any commit.

Each writes what the engine and the network were asked for, into the folder that ``ORACLE_SCENES`` names. It imports
nothing of the oracles, because it runs with the tests of another commit.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._session import admission
from ansible_collections.backendai.cluster.plugins.module_utils._session.apply import ApplyRequest, apply_claimed
from ansible_collections.backendai.cluster.plugins.module_utils._session.contents import RenderedFiles
from ansible_collections.backendai.cluster.plugins.module_utils._session.remove import remove_claimed
from tests.unit.agent import engine, kernel, store
from tests.unit.builders import GIB, agent_facts, held, plan, public_keys
from tests.unit.fake_docker import FakeDocker
from tests.unit.fake_network import FakeNetwork, FakeTable

__all__ = ("engine", "kernel", "store")
SEED, SCENES = os.environ.get("ORACLE_SEED", ""), 200
PLACES = ({"agent1": 1}, {"agent1": 3}, {"agent1": 2, "agent2": 1}, {"agent1": 1, "agent2": 2, "agent3": 4})


@pytest.fixture(autouse=True)
def nobody_waits_at_a_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine of these scenes starts no process."""
    monkeypatch.setattr(admission, "runs", lambda _pid: False)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines that the fake network gets."""
    lines: list[str] = []

    def record(kind: type, name: str, texts: Callable[..., list[str]]) -> None:
        method = getattr(kind, name)

        def recorded(*asked: Any) -> Any:
            lines.extend(texts(*asked))
            return method(*asked)

        monkeypatch.setattr(kind, name, recorded)

    record(FakeNetwork, "batch", lambda _network, command, given, pid: [f"{' '.join(command)} in {pid}", *given])
    record(FakeNetwork, "apply_table", lambda _network, text: ["nft", *text.splitlines()])
    record(FakeTable, "apply", lambda _table, text: ["nft, connections", *text.splitlines()])
    return lines


def options(rng: random.Random) -> dict[str, Any]:
    """Return the options of a request."""
    chosen: dict[str, Any] = {"resources": {"cpu": rng.choice((1, 2)), "mem": GIB, "shmem": rng.choice(("64m", "1g"))}}
    chosen["network_driver"] = rng.choice(("vxlan", "vxlan", "vxlan", "host"))
    if rng.random() < 0.4:
        chosen |= {"command": "exec sleep 60", "command_scope": rng.choice(("main", "all"))}
    more = {
        "mounts": [{"source": "/mnt/a", "target": "/a"}, {"source": "/mnt/b", "target": "/b", "read_only": True}],
        "failure_policy": rng.choice(("terminate", "restart")),
        "no_new_privileges": False,
        "stop_grace": rng.randint(1, 60),
        "max_lifetime": 7200,
        "apps": ["terminal"],
        "uid": rng.choice((1000, 1100)),
        "bootstrap_script": "true",
    }
    return chosen | {name: value for name, value in more.items() if rng.random() < 0.4}


def hurt(rng: random.Random, engine: FakeDocker, kernel: FakeNetwork) -> str:
    """Change what exists, and say what."""
    damage = rng.choice(("nothing", "container", "digest", "network", "link", "table"))
    if damage == "container":
        engine.made.pop()
    elif damage == "digest":
        engine.made[0]["Labels"][labels.DIGEST] = "another"
    elif damage == "network":
        engine.joined.clear()
    elif damage == "link":
        kernel.links.clear()
    elif damage == "table":
        kernel.table = "another"
    return damage


def container_of(call: str) -> str:
    """Return the container that a call is about, nothing if it is about none."""
    found = re.search(r"train-llm-(\w+)", call)
    return found[1] if found else ""


@pytest.mark.parametrize("number", range(SCENES))
def test_a_session_is_applied_repaired_and_removed(
    number: int, engine: Any, store: Store, kernel: FakeNetwork, scene: list[str]
) -> None:
    rng = random.Random(f"{SEED}-{number}")
    places = rng.choice(PLACES)
    chosen = options(rng)
    told = [f"{places}, {chosen}"]

    def tell(what: str) -> None:
        # Containers are made at the same time: their calls are told one container after the other.
        told.extend([f"# {what}", *scene, "engine:", *sorted(engine.calls, key=container_of)])
        told.extend(sorted(json.dumps(asked, default=repr, sort_keys=True, indent=1) for asked in engine.asked))
        for lines in (scene, engine.calls, engine.asked):
            lines.clear()

    try:
        made = plan(places, [agent_facts(name, allow_host_network=True) for name in places], **chosen)
    except ValueError as error:
        told.append(f"refused: {error}")
    else:
        if rng.random() < 0.3:
            other = dataclasses.replace(
                plan({"agent1": 1, "agent2": 1}), id=f"{number:08x}-3c0e-4f5e-9d0a-0f3c1d2e4b6b"
            )
            store.save(held(other))
        store.save(held(made))
        environments = {each.hostname: {"TOKEN": "x", "BACKENDAI_CLUSTER_SIZE": "1"} for each in made.kernels}
        contents = RenderedFiles(
            "127.0.0.1 localhost\n", "Host *\n", environments, public_keys(made), ("ssh-ed25519 A",)
        )
        request = ApplyRequest(made, "agent1", "nonce-1", contents, "backendai-default")
        for step in ("applied", "again", "repaired"):
            if step == "repaired":
                told.append(f"damage: {hurt(rng, engine, kernel)}")
            try:
                changes = apply_claimed(engine, store, request, check_mode=False)[0]
                told.extend(f"change: {change.subject}" for change in changes)
            except Exception as error:
                told.append(f"{type(error).__name__}: {error}")
            tell(step)
        told.extend(f"change: {each}" for each in remove_claimed(engine, store, made.id, None, check_mode=False))
        tell("removed")
    text = "\n".join(told).replace(str(store.root), "…")
    Path(os.environ["ORACLE_SCENES"], f"{number:03}.txt").write_text(f"{text}\n")
