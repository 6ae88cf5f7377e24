"""GPUs that containers have lost; the real script looks at device nodes of this host."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

import docker.errors
import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import PinnedResources
from ansible_collections.backendai.cluster.plugins.module_utils._session import gpu_access
from ansible_collections.backendai.cluster.plugins.module_utils._session.gpu_access import lost_nodes
from tests.unit.builders import held, own_labels, plan

NODES = {
    "GPU-aaaa": ("/dev/null", "/dev/zero", "/dev/nvidia-uvm"),
    "GPU-bbbb": ("/dev/full", "/dev/zero", "/dev/nvidia-uvm"),
}
PINNED = {
    "main1": PinnedResources([0], {"cuda.device": ["GPU-aaaa", "GPU-bbbb"]}),
    "sub1": PinnedResources([1], {"lab.device": ["/dev/fuse"], "rocm.device": ["/dev/random,/dev/urandom"]}),
    "sub2": PinnedResources([2]),
}
SESSION = held(plan({"agent1": 3}), pinned=PINNED)
LOOKED_AT = {"main1": ["/dev/null", "/dev/zero", "/dev/full"], "sub1": ["/dev/random", "/dev/urandom"]}


@pytest.fixture(autouse=True)
def asked(engine: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Sequence[str]]:
    """Run the session, and the script on this host; return the nodes that it looks at, by container."""
    for hostname in PINNED:
        bears = own_labels(hostname)
        engine.made.append(
            {"Id": hostname, "Names": [f"/backendai-train-llm-{hostname}"], "Labels": bears, "State": "running"}
        )
    looked_at: dict[str, Sequence[str]] = {}

    def run_here(_client: Any, container: str, command: Sequence[str], seconds: int) -> str:
        assert seconds == gpu_access.SECONDS
        busybox, *words = command
        assert busybox == gpu_access.BUSYBOX
        looked_at[container] = words[4:]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    monkeypatch.setattr(gpu_access, "run_as_work", run_here)
    monkeypatch.setattr(gpu_access, "gpu_nodes", lambda: NODES)
    return looked_at


def prints(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(gpu_access, "run_as_work", lambda *_command: text)


def test_containers_whose_gpus_can_be_opened_have_lost_none(
    engine: Any, store: Store, asked: dict[str, Sequence[str]]
) -> None:
    assert lost_nodes(engine, store, SESSION) == {}
    assert asked == LOOKED_AT


def test_missing_nodes_are_lost(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_access, "gpu_nodes", lambda: {"GPU-aaaa": ("/dev/absent0", "/dev/zero", "/dev/absentctl")})
    monkeypatch.setattr(gpu_access, "_opens", lambda _node: True)
    assert lost_nodes(engine, store, SESSION) == {"main1": "/dev/absent0, /dev/absentctl"}


def test_a_node_that_fails_for_another_reason_is_not_lost(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process has no terminal."""
    monkeypatch.setattr(gpu_access, "gpu_nodes", lambda: {"GPU-aaaa": ("/dev/tty",)})
    monkeypatch.setattr(gpu_access, "_opens", lambda _node: True)
    assert lost_nodes(engine, store, SESSION) == {}


def test_a_node_that_the_agent_cannot_open_is_not_looked_at(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Sequence[str]]
) -> None:
    monkeypatch.setattr(gpu_access, "gpu_nodes", lambda: {"GPU-aaaa": ("/dev/absent0", "/dev/zero")})
    assert lost_nodes(engine, store, SESSION) == {}
    assert asked["main1"] == ["/dev/zero"]


def test_what_else_a_container_prints_is_ignored(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    prints(monkeypatch, "/dev/zero\n/dev/sda\nnoise\n")
    assert lost_nodes(engine, store, SESSION) == {"main1": "/dev/zero"}


@pytest.mark.parametrize("state", ["exited", "paused", "created"])
def test_a_container_that_does_not_run_is_not_asked(
    engine: Any, store: Store, asked: dict[str, Sequence[str]], state: str
) -> None:
    engine.made[0]["State"] = state
    assert lost_nodes(engine, store, SESSION) == {}
    assert [*asked] == ["sub1"]


def test_a_container_that_cannot_be_asked_has_lost_nothing(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_command: Any) -> str:
        raise docker.errors.APIError("container main1 is not running")

    monkeypatch.setattr(gpu_access, "run_as_work", fail)
    assert lost_nodes(engine, store, SESSION) == {}
