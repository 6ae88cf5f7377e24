"""The steps before an agent is given back: sessions are looked for, and the agent is closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._host.cordon import read_cordon, replace_cordon
from ansible_collections.backendai.cluster.plugins.module_utils._host.home_folder import prepare_folder
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.cordon import Cordon
from ansible_collections.backendai.cluster.plugins.modules import agent_removal
from tests.unit.builders import NOW, held, own_labels, plan
from tests.unit.module_runs import result_of

OURS = {labels.OWNER: labels.OWNER_VALUE}
DEFAULT = {"Id": "0123456789abcdef", "Name": "backendai-default", "Labels": OURS}


class Engine:
    """A fake engine with containers, networks and volumes."""

    def __init__(self) -> None:
        self.listed: list[dict[str, Any]] = []
        self.existing: list[dict[str, Any]] = [DEFAULT]

    def containers(self, **query: Any) -> list[dict[str, Any]]:
        label = query["filters"].get("label")
        return [container for container in self.listed if (container["Labels"] if label else container["Network"])]

    def networks(self, filters: dict[str, list[str]]) -> list[dict[str, Any]]:
        return [network for network in self.existing if filters["name"][0] in network["Name"]]

    def remove_network(self, network: str) -> None:
        self.existing = [entry for entry in self.existing if entry["Id"] != network]


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Return the engine of the agent, which is no gateway."""
    made = Engine()
    monkeypatch.setattr(agent_removal, "connect_unless_removed", lambda _address: made)
    monkeypatch.setattr(agent_removal, "find_roles", lambda: ["agent"])
    return made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return the state of an agent without sessions."""
    (tmp_path / "sessions").mkdir()
    (tmp_path / "lock").touch()
    return Store(str(tmp_path))


@pytest.fixture
def run(store: Store, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that takes a step and returns the result of the module."""

    def take(state: str, *, check_mode: bool = False, **options: Any) -> dict[str, Any]:
        given = {"state": state, "state_path": str(store.root), **options}
        return result_of("agent_removal", given, capsys, check_mode=check_mode)

    return take


REFUSAL = (
    "sessions are on this agent: train; end them with backendai.cluster.terminate_session, or run this playbook with -e"
    " remove_sessions=true, which ends them first."
)


@pytest.mark.parametrize("state", ["checked", "closed"])
def test_an_agent_with_a_session_is_refused_and_stays_in_service(run: Any, store: Store, state: str) -> None:
    store.save(held(plan(name="train")))
    result = run(state)
    assert (result["failed"], result["msg"]) == (True, REFUSAL)
    assert read_cordon(store) is None


def test_containers_of_no_session_are_only_in_the_way_where_they_use_the_default_network(
    run: Any, store: Store, engine: Engine
) -> None:
    session = held(plan(name="train"))
    store.save(session)
    store.container_ids(session.plan.id).record("main1", "own")
    own, lost = own_labels("main1"), own_labels("main1", "lost-id")
    engine.listed = [
        {"Id": "own", "Names": ["/main1"], "Labels": own, "Network": True},
        {"Id": "saved", "Names": ["/saved"], "Labels": own, "Network": False},
    ]
    assert run("checked", end_sessions=True)["sessions"] == ["train"]
    engine.listed += [
        {"Id": "y", "Names": ["/y"], "Labels": lost, "Network": True},
        {"Id": "x", "Names": ["/x"], "Labels": {}, "Network": True},
    ]
    assert run("checked", end_sessions=True)["msg"] == (
        "containers of no session use the Docker network backendai-default: x, y; remove them with docker rm -f x y, or"
        " take them off that network."
    )


def test_sessions_that_are_to_be_ended_are_returned(run: Any, store: Store) -> None:
    store.save(held(plan(name="train")))
    assert run("checked", end_sessions=True)["sessions"] == ["train"]
    assert "failed" not in run("closed", end_sessions=True, check_mode=True)
    assert run("closed", end_sessions=True)["msg"] == REFUSAL


def test_a_closed_agent_takes_no_new_session(run: Any, store: Store) -> None:
    assert run("closed", check_mode=True)["changed"]
    assert read_cordon(store) is None
    assert [run("closed")["changed"], run("closed")["changed"]] == [True, False]
    cordon = read_cordon(store)
    assert cordon is not None
    assert cordon.reason == "it is given back"


def test_an_agent_whose_state_is_gone_needs_not_be_closed(run: Any, store: Store) -> None:
    (store.root / "lock").unlink()
    assert not run("closed")["changed"]


def test_a_host_that_is_a_gateway_too_is_refused(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_removal, "find_roles", lambda: ["agent", "gateway"])
    assert run("checked")["msg"] == ("this host is a gateway, too: run backendai.cluster.remove_gateways for it first.")


def test_the_default_network_is_removed(run: Any, engine: Engine) -> None:
    assert run("removed", check_mode=True)["changed"]
    assert engine.existing == [DEFAULT]
    assert run("removed")["changed"]
    assert engine.existing == []
    assert not run("removed")["changed"]


def test_a_network_of_that_name_of_others_stays(run: Any, engine: Engine) -> None:
    engine.existing = [{**DEFAULT, "Labels": {}}]
    assert not run("removed")["changed"]
    assert len(engine.existing) == 1


def test_without_an_engine_there_is_nothing_to_remove(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_removal, "connect_unless_removed", lambda _address: None)
    assert not run("removed")["changed"]
    assert run("checked")["sessions"] == []


def test_a_session_that_began_before_the_cordon_takes_the_cordon_back(
    run: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([[], ["train"]])
    monkeypatch.setattr(agent_removal, "_sessions", lambda _module: next(looks))
    assert run("closed")["msg"] == REFUSAL
    assert read_cordon(store) is None


def test_a_drain_goes_on_while_its_sessions_end(run: Any, store: Store) -> None:
    drain = Cordon("disk", "carol", NOW, NOW)
    replace_cordon(store, drain, check_mode=False)
    store.save(held(plan(name="train")))
    assert run("closed", end_sessions=True)["msg"] == REFUSAL
    assert read_cordon(store) == drain


def test_what_is_left_of_homes_is_removed(run: Any, store: Store, engine: Engine, tmp_path: Path) -> None:
    engine.existing = []
    prepare_folder(store, tmp_path.with_name("homes"), check_mode=False)
    store.homes.make(plan().id, "main1", 12345, 23456)
    store.homes.retire(plan().id)
    assert run("removed", check_mode=True)["changed"]
    assert tmp_path.with_name("homes").exists()
    assert run("removed")["diff"]["before"] == f"folder {tmp_path.with_name('homes')}: homes of sessions\n"
    assert not tmp_path.with_name("homes").exists()
    assert not run("removed")["changed"]
