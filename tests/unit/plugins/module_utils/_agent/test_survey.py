"""The facts of one agent: what it has, what is taken, which sessions it holds."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._agent import survey as surveying
from ansible_collections.backendai.cluster.plugins.module_utils._agent.survey import (
    Questions,
    Settings,
    cpu_load,
    survey,
)
from ansible_collections.backendai.cluster.plugins.module_utils._core.facts import AgentFacts, Underlay
from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import NotProvisioned, Store
from tests.unit.builders import GIB, IMAGE, SESSION_ID, held, plan

MADE = plan({"agent1": 2, "agent2": 2}, resources={"cpu": 2, "mem": GIB})
SETTINGS = Settings("default", True, (), {"cpu": 0, "mem": "512m"}, 1, 0, "")


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a host of four cores and 16 GiB, that uses one network and one VXLAN."""
    monkeypatch.setattr(surveying.machine, "online_cpus", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(surveying.machine, "memory_total", lambda: 16 * GIB)
    monkeypatch.setattr(surveying.network, "networks_in_use", lambda: ["192.0.2.0/24"])
    monkeypatch.setattr(surveying.network, "vnis_in_use", lambda: [7])
    monkeypatch.setattr(surveying.network, "find_underlay", lambda _address: Underlay("192.0.2.1", "eth0", 1500))


def read(engine: Any, store: Store, questions: Questions | None = None, **settings: Any) -> dict[str, Any]:
    return survey(engine, store, dataclasses.replace(SETTINGS, **settings), questions or Questions())


def container(hostname: str, state: str = "running", **changes: str) -> dict[str, Any]:
    bears = {
        labels.OWNER: labels.OWNER_VALUE,
        labels.SESSION_ID: SESSION_ID,
        labels.HOSTNAME: hostname,
        labels.IMAGE_DIGEST: "sha256:1",
        labels.SLOTS: json.dumps({"cpu": 2, "mem": GIB}),
        **changes,
    }
    return {"Id": hostname, "Names": [f"/{hostname}"], "Labels": bears, "State": state}


def test_an_empty_agent(engine: Any, store: Store) -> None:
    facts = read(engine, store)
    assert {key: facts[key] for key in ("engine", "kit", "online_cpus", "taken", "containers", "sessions")} == {
        "engine": "20.10.24",
        "kit": "0123456789ab",
        "online_cpus": [0, 1, 2, 3],
        "taken": {},
        "containers": 0,
        "sessions": [],
    }
    assert (facts["networks"], facts["vnis"]) == (["192.0.2.0/24"], [7])


def test_the_facts_are_what_planning_reads(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    facts = AgentFacts.from_dict("agent1", json.loads(json.dumps(read(engine, store))))
    assert facts.free == {"cpu": 0, "mem": 16 * GIB - (512 << 20) - 2 * GIB}
    assert (facts.containers, facts.latest_session) == (2, MADE.created_at)


@pytest.mark.parametrize(
    ("settings", "capacity"),
    [
        ({}, {"cpu": 4, "mem": 16 * GIB - (512 << 20)}),
        ({"reserved": {}}, {"cpu": 4, "mem": 16 * GIB}),
        ({"reserved": {"cpu": 1, "mem": "1g"}}, {"cpu": 3, "mem": 15 * GIB}),
        ({"reserved": {"cpu": 99, "mem": "1t"}}, {"cpu": 0, "mem": 0}),
        ({"reserved": {}, "cpu_overcommit": 8}, {"cpu": 32, "mem": 16 * GIB}),
        (
            {"reserved": {}, "slots": [{"name": "cuda.device", "devices": ["/dev/nvidia0", "/dev/nvidia1"]}]},
            {"cpu": 4, "mem": 16 * GIB, "cuda.device": 2},
        ),
        (
            {"reserved": {"tpu": 1}, "slots": [{"name": "tpu", "devices": ["a"]}, {"name": "tpu", "devices": ["b"]}]},
            {"cpu": 4, "mem": 16 * GIB, "tpu": 1},
        ),
    ],
    ids=["default", "nothing reserved", "reserved", "all reserved", "overcommit", "devices", "devices in two lists"],
)
def test_capacity_is_what_the_host_has_less_what_is_reserved(
    engine: Any, store: Store, settings: dict[str, Any], capacity: dict[str, int]
) -> None:
    assert read(engine, store, **settings)["capacity"] == capacity


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"reserved": {"mem": "lots"}},
            "agent_reserved.mem: 'lots' must be bytes, such as 1g, 512m or 1073741824",
        ),
        ({"reserved": {"cpu": -1}}, "agent_reserved.cpu: -1 must be a whole number, zero or more"),
    ],
)
def test_a_setting_that_is_no_amount_is_refused_by_its_name(
    engine: Any, store: Store, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        read(engine, store, **settings)


@pytest.mark.parametrize(
    ("expires_at", "taken", "containers"),
    [(None, {"cpu": 4, "mem": 2 * GIB}, 2), (9e12, {"cpu": 4, "mem": 2 * GIB}, 2), (1.0, {}, 0)],
    ids=["committed", "being created", "given up"],
)
def test_what_sessions_take_counts_until_they_are_given_up(
    engine: Any, store: Store, expires_at: float | None, taken: dict[str, int], containers: int
) -> None:
    store.save(held(MADE, expires_at=expires_at))
    facts = read(engine, store)
    assert (facts["taken"], facts["containers"]) == (taken, containers)
    assert MADE.network is not None
    assert (MADE.network.subnet in facts["networks"]) == (MADE.network.vni in facts["vnis"]) == bool(containers)
    assert facts["sessions"][0]["expired"] is (not containers)


def test_a_container_whose_folder_was_lost_counts_too(engine: Any, store: Store) -> None:
    engine.made = [container("main1"), container("sub1", "exited", **{labels.SLOTS: '{"cpu": 1}'})]
    facts = read(engine, store)
    assert (facts["taken"], facts["containers"]) == ({"cpu": 3, "mem": GIB}, 2)


def test_a_container_of_a_held_session_counts_once(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    engine.made = [container("main1")]
    assert read(engine, store)["containers"] == 2


def test_a_session_is_told_with_its_containers(engine: Any, store: Store) -> None:
    store.save(held(MADE, request={"name": "train-llm"}))
    engine.made = [container("main1"), container("sub1", "exited"), container("x", **{labels.SESSION_ID: "other"})]
    assert read(engine, store)["sessions"] == [
        {
            "plan": MADE.to_dict(),
            "request": {"name": "train-llm"},
            "committed": True,
            "expired": False,
            "containers": {
                "main1": {"status": "running", "image_digest": "sha256:1"},
                "sub1": {"status": "exited", "image_digest": "sha256:1"},
            },
            "public_keys": {
                "main1": {"user": "ssh-ed25519 USER-main1", "host": "ssh-ed25519 HOST-main1"},
                "sub1": {"user": "ssh-ed25519 USER-sub1", "host": "ssh-ed25519 HOST-sub1"},
            },
        }
    ]


def test_asked_images_and_folders_are_looked_for(engine: Any, store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    paths = [str(tmp_path), str(tmp_path / "file"), str(tmp_path / "absent")]
    facts = read(engine, store, Questions([IMAGE, "absent:1"], paths))
    assert facts["images"] == {IMAGE: "sha256:1", "absent:1": None}
    assert facts["missing_paths"] == paths[1:]


def test_an_agent_without_a_kit_has_no_facts(engine: Any, tmp_path: Path) -> None:
    with pytest.raises(NotProvisioned, match=r"run backendai\.cluster\.provision_agents on this host\.$"):
        read(engine, Store(str(tmp_path / "absent")))


def test_the_load_of_a_core_is_how_many_containers_are_pinned_to_it() -> None:
    assert cpu_load([held(MADE, cpus={"main1": [0, 1], "sub1": [1]}), held(MADE, cpus={"sub2": [1, 3]})]) == {
        0: 1,
        1: 3,
        3: 1,
    }
