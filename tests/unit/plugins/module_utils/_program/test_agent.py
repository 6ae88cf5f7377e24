"""The phases survey and cordon."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._host.image_records import ImageRecords
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._module import CAPACITY_OPTIONS
from ansible_collections.backendai.cluster.plugins.module_utils._program import agent
from ansible_collections.backendai.cluster.plugins.module_utils._session.facts import AgentSettings, FactsQuery
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.cluster_state import ClusterState
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.agents import agents_report, render_agents
from tests.unit.builders import IMAGE, agent_facts, held, image_data, plan
from tests.unit.engine_server import EngineServer
from tests.unit.nvidia_smi import NvidiaSmi
from tests.unit.phases import NOWHERE, result_of

SETTINGS = {name: option["default"] for name, option in CAPACITY_OPTIONS.items()}
FACTS = agent_facts("agent1", warnings=["nvidia-smi fails (no driver), so this agent offers no cuda.device"])


def options(state_path: Path) -> dict[str, Any]:
    return {
        "docker_host": NOWHERE,
        "state_path": str(state_path),
        "settings": {**SETTINGS, "resource_group": "gpu"},
        "images": [IMAGE],
        "paths": ["/mnt"],
        "keys_of": ["5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a"],
    }


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "connect", lambda address: f"client of {address}")


@pytest.mark.usefixtures("connected")
def test_facts_are_collected_with_the_inventory_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def survey(client: str, store: Store, settings: AgentSettings, questions: FactsQuery) -> AgentFacts:
        calls.extend([client, store.firewall_file, settings, questions])
        return FACTS

    monkeypatch.setattr(agent, "collect_facts", survey)
    assert result_of("survey", options(tmp_path)) == {"agent": FACTS.to_dict(), "error": None}
    settings, questions = (
        AgentSettings(**{**SETTINGS, "resource_group": "gpu"}, docker_host=NOWHERE),
        FactsQuery([IMAGE], ["/mnt"], keys_of=["5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a"]),
    )
    assert calls == [f"client of {NOWHERE}", tmp_path / "firewall.json", settings, questions]


@pytest.mark.parametrize(
    ("devices", "reserved", "asked"),
    [
        ([{"slot": "cuda.device", "id": "GPU-a"}], [], True),
        ([{"slot": "cuda.device", "id": "GPU-a"}], ["GPU-a"], False),
        ([{"slot": "tpu", "id": "/dev/accel0"}], [], False),
    ],
    ids=["a GPU", "a GPU that is reserved", "no GPU"],
)
def test_a_survey_warns_of_others_if_it_is_told_to(
    engine: Any,
    driver: NvidiaSmi,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    devices: list[dict[str, Any]],
    reserved: list[str],
    asked: bool,
) -> None:
    engine.made = [{"Id": "a", "Names": ["/web"], "Labels": {}, "State": "running"}]
    driver.says("echo 'GPU-a, [N/A]'")
    monkeypatch.setattr(agent, "connect", lambda _address: engine)
    monkeypatch.setattr(agent, "collect_facts", lambda *_asked: agent_facts("agent1", devices=devices))
    quiet = options(tmp_path)
    assert "warnings" not in result_of("survey", quiet)
    settings = {**quiet["settings"], "reserved_devices": reserved}
    warnings = result_of("survey", {**quiet, "settings": settings, "others": True})["warnings"]
    *of_gpus, of_containers = warnings
    assert of_containers.startswith("container web: of no session")
    said = "GPU-a is used by an unknown process: name it in agent_reserved_devices."
    assert of_gpus == ([said] if asked else [])
    assert len(driver.calls) == int(asked)


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize(("check_mode", "known"), [(False, True), (True, False)])
def test_image_that_a_session_may_need_stays_for_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check_mode: bool, known: bool
) -> None:
    facts = agent_facts("agent1", images={IMAGE: image_data(), "other:1": None})
    monkeypatch.setattr(agent, "collect_facts", lambda *_asked: facts)
    result_of("survey", options(tmp_path), check_mode=check_mode)
    assert (ImageRecords(tmp_path / "images").find("sha256:1") is not None) is known


@pytest.mark.usefixtures("connected")
def test_agent_with_an_invalid_declaration_returns_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = "agent_slots: /dev/nope of lab.device is not a device node here"

    def survey(*_reading: object) -> None:
        raise ValueError(sentence)

    monkeypatch.setattr(agent, "collect_facts", survey)
    assert result_of("survey", options(tmp_path)) == {"agent": None, "error": sentence}


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
def test_agent_with_a_stopped_engine_returns_an_error(tmp_path: Path, check_mode: bool) -> None:
    result = result_of("survey", options(tmp_path), check_mode=check_mode)
    assert result["agent"] is None
    assert result["error"].startswith(f"the Docker engine at {NOWHERE} does not answer the Docker SDK for Python ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["/_ping", "/v1.41/containers/json"], ids=["all calls", "one call"])
def test_an_agent_whose_engine_hangs_returns_the_call_that_it_did_not_answer_and_is_listed_with_it(
    store: Store, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(agent, "connect", functools.partial(connect, timeout=1))
    # The name of a socket has to be short.
    with EngineServer(tmp_path_factory.mktemp("e") / "socket").serving() as server:
        server.silent = {f"GET {call}"}
        told = result_of("survey", {**options(store.root), "docker_host": server.url})
    sentence = (
        f"the Docker engine at {server.url} did not answer GET {call} within 1 seconds: restart it on this host"
        " (systemctl restart docker) if that stays so."
    )
    assert told == {"agent": None, "error": sentence}
    listed = render_agents(agents_report(ClusterState({}, {"agent1": sentence})))
    assert [line.split(maxsplit=4)[2:] for line in listed[1:]] == [["unusable", "-", sentence]]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return the store of a provisioned agent."""
    (tmp_path / "sessions").mkdir()
    (tmp_path / "lock").touch()
    return Store(str(tmp_path))


def cordon_options(store: Store, **changes: Any) -> dict[str, Any]:
    ordinary = {"state": "present", "reason": "disk", "by": "carol", "sessions_end_after": None}
    return {"docker_host": NOWHERE, "state_path": str(store.root), **ordinary, **changes}


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return the sessions whose terminals are told, and what."""
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(
        agent, "announce", lambda _host, _store, sessions, text: told.extend((one.plan.name, text) for one in sessions)
    )
    return told


def test_an_agent_without_an_engine_is_cordoned_and_resumed(store: Store, announced: list[Any]) -> None:
    store.save(held(plan()))
    result = result_of("cordon", cordon_options(store))
    assert result == {
        "changed": True,
        "diff": {"before": "", "after": "cordon: cordoned by carol (disk)\n"},
        "cordoned_before": False,
        "description": "cordoned by carol (disk)",
        "sessions": ["train-llm"],
    }
    again = result_of("cordon", cordon_options(store, by="dave"))
    assert (again["changed"], again["cordoned_before"], again["description"]) == (False, True, result["description"])
    resumed = result_of("cordon", cordon_options(store, state="absent"))
    assert (resumed["changed"], resumed["cordoned_before"], resumed["description"]) == (True, True, "")
    assert announced == []


@pytest.mark.parametrize("check_mode", [False, True])
def test_the_terminals_of_sessions_hear_of_a_drain(store: Store, announced: list[Any], check_mode: bool) -> None:
    store.save(held(plan()))
    drain = cordon_options(store, sessions_end_after=600)
    result = result_of("cordon", drain, check_mode=check_mode)
    assert announced == ([] if check_mode else [("train-llm", f"{result['description']}: save your work")])
    assert "its sessions end by" in result["description"]


def test_terminals_that_cannot_be_told_do_not_stop_a_drain(store: Store) -> None:
    store.save(held(plan()))
    assert result_of("cordon", cordon_options(store, sessions_end_after=0))["changed"]
