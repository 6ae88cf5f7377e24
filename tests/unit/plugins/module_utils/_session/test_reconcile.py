"""Restoring sessions on an agent: links, containers after an engine's start, and no uncommitted session."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, NoReturn

import pytest
from docker.errors import APIError

from ansible_collections.backendai.cluster.plugins.module_utils._docker import containers, labels
from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import DockerUnavailableError
from ansible_collections.backendai.cluster.plugins.module_utils._docker.image_files import NAME_PREFIX
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.sync import sync_ruleset
from ansible_collections.backendai.cluster.plugins.module_utils._host.homes import Homes
from ansible_collections.backendai.cluster.plugins.module_utils._host.image_records import LOOKS
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._network.container import InterfacePlan
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import LinkOperation, NetworkError
from ansible_collections.backendai.cluster.plugins.module_utils._session import agent_needs, leftovers, reconcile
from ansible_collections.backendai.cluster.plugins.module_utils._session.agent_needs import NEEDS, Failure, Lack
from ansible_collections.backendai.cluster.plugins.module_utils._session.leftovers import remove_folders
from ansible_collections.backendai.cluster.plugins.module_utils._session.reconcile import restore
from tests.unit.builders import NOW, SESSION_ID, held, own_labels, plan
from tests.unit.fake_docker import FakeDocker
from tests.unit.fake_network import FakeNetwork

MADE = plan({"agent1": 2, "agent2": 2})
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
LINK = str(MADE.network and MADE.network.link)


def stopped(engine: FakeDocker, *hostnames: str, state: str = "exited") -> None:
    """Let these containers of the session be there."""
    for name in hostnames:
        bears = own_labels(name)
        engine.made.append(
            {"Id": f"id-{name}", "Names": [f"/backendai-train-llm-{name}"], "Labels": bears, "State": state}
        )


def mounting(engine: FakeDocker, store: Store) -> None:
    """Let a container be there that has mounted the files of the session, whatever it is called."""
    source = str(store.kernel_folder(SESSION_ID, "main1"))
    mounts = [{"Source": source, "Destination": "/run/backendai"}, {"Type": "volume", "Name": "v"}]
    engine.made.append({"Id": "m", "Names": ["/m"], "Labels": {}, "State": "exited", "Mounts": mounts})


def restored(store: Store, engine: FakeDocker | None = None, *, start: bool = False) -> list[str]:
    """Restore all sessions, and return what failed; without an engine it is down."""

    def connect() -> Any:
        if engine is None:
            raise DockerUnavailableError("the engine does not answer.")
        return engine

    return restore(store, connect, start=start)[1]


def test_links_and_rules_come_back_without_an_engine(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    assert restored(store) == []
    assert (kernel.links, bool(kernel.table)) == ({LINK}, True)


def test_second_restore_changes_nothing(store: Store, engine: Any) -> None:
    store.save(held(MADE))
    changes, failures = restore(store, lambda: engine, start=False)
    assert f"link {LINK}" in [change.subject for change in changes]
    assert failures == []
    assert restore(store, lambda: engine, start=False) == ([], [])


def test_containers_come_back_after_their_links(store: Store, engine: FakeDocker, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    stopped(engine, "main1", "sub1")
    assert restored(store, engine, start=True) == []
    assert kernel.links == {LINK}
    assert sorted(engine.calls) == ["start id-main1", "start id-sub1"]
    assert {(container.hostname, container.session and container.session.parent) for container in kernel.plugged} == {
        ("main1", LINK),
        ("sub1", LINK),
    }


@pytest.mark.parametrize("infiniband", [True, False])
def test_only_containers_with_infiniband_wait_for_its_device_nodes(
    store: Store, engine: FakeDocker, monkeypatch: pytest.MonkeyPatch, infiniband: bool
) -> None:
    store.save(held(dataclasses.replace(MADE, infiniband=infiniband)))
    stopped(engine, "main1", "sub1")
    start = engine.start
    naps: list[float] = []

    def start_with_nodes(container: str) -> None:
        if not naps:
            raise APIError("500", None, "error gathering device information: no such file or directory")
        start(container)

    monkeypatch.setattr(engine, "start", start_with_nodes)
    monkeypatch.setattr(containers.time, "sleep", naps.append)
    failures = restored(store, engine, start=True)
    assert [container["State"] for container in engine.made] == (["running"] if infiniband else ["exited"]) * 2
    assert bool(failures) is not infiniband


def test_the_command_of_a_batch_session_is_not_run_again(store: Store, engine: FakeDocker) -> None:
    store.save(held(dataclasses.replace(MADE, command="exec train")))
    store.kernel_folder(SESSION_ID, "main1").mkdir()
    store.start_marker(SESSION_ID).touch()
    stopped(engine, "main1", "sub1")
    assert restored(store, engine, start=True) == []
    assert engine.calls == ["start id-sub1"]


def test_an_uncommitted_session_is_left_to_its_run(store: Store, engine: FakeDocker, kernel: FakeNetwork) -> None:
    store.save(held(MADE, expires_at=9e12))
    stopped(engine, "main1")
    assert restored(store, engine, start=True) == []
    assert (engine.calls, kernel.links) == ([], set())
    assert kernel.table


def test_a_claim_whose_time_is_over_is_removed(store: Store, engine: FakeDocker) -> None:
    store.save(held(MADE, expires_at=1.0))
    stopped(engine, "main1", state="created")
    assert restored(store, engine) == []
    assert engine.calls == ["remove id-main1"]
    assert store.sessions() == []


def test_a_session_that_ended_meanwhile_is_no_failure(
    store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "load_all", lambda _excluded="": ([held(MADE)], []))
    sync_ruleset(store, check_mode=False)
    engine: Any = FakeDocker()
    assert restore(store, lambda: engine, start=True) == ([], [])
    assert kernel.links == set()


def test_what_fails_for_one_session_stops_no_other(
    store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = dataclasses.replace(MADE, id=OTHER_ID, name="broken")
    store.save(held(broken))
    store.save(held(MADE))
    batch = kernel.batch

    def fail(command: list[str], lines: list[str], pid: int | None) -> None:
        if lines and not kernel.links:
            kernel.links.add("tried")
            raise NetworkError("ip -batch: File exists")
        batch(command, lines, pid)

    monkeypatch.setattr(kernel, "batch", fail)
    assert restored(store) == ["broken: ip -batch: File exists"]
    assert kernel.links == {"tried", LINK}


def test_a_damaged_session_is_told_and_cut_off(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    other = store.folder(OTHER_ID)
    other.mkdir()
    (other / "session.json").write_text("{")
    (failure,) = restored(store)
    assert failure.startswith(f"{other / 'session.json'} is damaged")
    assert kernel.links == {LINK}


def test_a_session_that_a_run_is_at_work_on_is_left_to_the_next_time(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    with store.session_lock(SESSION_ID):
        assert restored(store) == []
    assert kernel.links == set()
    assert restored(store) == []
    assert kernel.links == {LINK}


def test_networks_of_running_containers_are_restored_every_time(
    store: Store, engine: FakeDocker, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(held(MADE))
    stopped(engine, "main1", state="running")
    assert restored(store, engine) == []
    assert [container.hostname for container in kernel.plugged] == ["main1"]
    step = LinkOperation(Change("cluster0 of main1", None, "10.128.3.2/29"), ("link add cluster0",))
    monkeypatch.setattr(reconcile, "plan_interfaces", lambda *_reading: InterfacePlan([step], {}))
    client: Any = engine
    changes, failures = restore(store, lambda: client, start=False)
    assert step.change in changes
    assert failures == []
    assert "cluster0" in kernel.links


@pytest.mark.parametrize("start", [True, False], ids=["engine start", "timer"])
def test_links_of_no_session_are_removed(store: Store, engine: FakeDocker, kernel: FakeNetwork, *, start: bool) -> None:
    mounting(engine, store)
    stopped(engine, "main1", state="running")
    # An image has the labels of the container that it was made of, too.
    engine.made[-1]["Labels"] = own_labels("main1", f"00000000-02{OTHER_ID[11:]}")
    foreign = f"bax-{SESSION_ID.replace('-', '')[:10]}"
    kernel.links = {"bai-0000000001", "bax-0000000002", foreign, "eth0"}
    client: Any = engine
    # The timer removes what it finds twice.
    restore(store, lambda: client, start=False)
    assert "bai-0000000001" in kernel.links
    kernel.links |= {"bax-0000000003"}
    changes, failures = restore(store, lambda: client, start=start)
    kernel.links -= {"bax-0000000003"}
    assert [(change.subject, change.after) for change in changes if change.before == "of no session"] == [
        ("link bai-0000000001", None),
        ("link bax-0000000002", None),
        *([("link bax-0000000003", None)] if start else []),
    ]
    assert [OTHER_ID in failure for failure in failures] == []
    assert kernel.links == {foreign, "eth0"}


def test_folders_without_a_session_are_removed_unless_a_container_mounts_them(
    store: Store, engine: FakeDocker, kernel: FakeNetwork
) -> None:
    key = store.kernel_folder(OTHER_ID, "main1") / "ssh" / "id_ed25519"
    for path in (key, store.kernel_folder(SESSION_ID, "main1") / "ssh" / "id_ed25519"):
        path.parent.mkdir(parents=True)
        path.touch()
    mounting(engine, store)
    stopped(engine, "main1", state="running")
    engine.made[-1]["Labels"] = own_labels("main1", OTHER_ID)
    bridge = f"bai-{SESSION_ID.replace('-', '')[:10]}"
    kernel.links |= {bridge}
    client: Any = engine
    changes, failures = restore(store, lambda: client, start=False)
    assert (Change(f"folder {store.folder(OTHER_ID)}", "of no session", None) in changes, failures) == (True, [])
    assert (store.held_ids(), bridge in kernel.links) == ([SESSION_ID], True)


def test_a_claim_that_is_being_stored_is_not_swept(store: Store, engine: FakeDocker) -> None:
    store.folder(OTHER_ID).mkdir()
    found = store.nameless_ids()
    store.save(held(dataclasses.replace(MADE, id=OTHER_ID)))
    client: Any = engine
    assert remove_folders(client, store, found) == []
    assert store.held_ids() == [OTHER_ID]


def test_container_that_lost_an_interface_is_a_failure(
    store: Store, engine: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(held(MADE))
    monkeypatch.setattr(reconcile, "plan_interfaces", lambda *_reading: InterfacePlan([], {"main1": "eth0"}))
    (failure,) = restored(store, engine)
    assert failure.startswith("train-llm: main1 has lost eth0: run repair_session")


def test_damaged_egress_policy_is_a_failure_and_stops_no_repair(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    store.egress_file.write_text("{")
    (failure,) = restored(store)
    assert "egress.json is damaged" in failure
    assert kernel.links == {LINK}


def test_leftovers_wait_for_the_engine_and_their_errors_are_failures(
    store: Store, engine: FakeDocker, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.links = {"bai-0000000001"}
    assert [restored(store), restored(store)] == [[], []]
    assert kernel.links == {"bai-0000000001"}

    def refuse(_name: str) -> NoReturn:
        raise NetworkError("ip failed: busy")

    monkeypatch.setattr(leftovers, "remove_link", refuse)
    assert restored(store, engine) == ["ip failed: busy"]


def test_containers_of_killed_looks_at_images_are_removed_by_the_timer(
    store: Store, engine: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{NAME_PREFIX}1"
    engine.create_container("sha256:1", name, labels={labels.OWNER: labels.LOOK_VALUE})
    # The fake takes an id; the engine takes a name, too.
    engine.made[0]["Id"] = name
    (store.images_folder / LOOKS).mkdir(parents=True)
    (store.images_folder / LOOKS / name).touch()
    assert restored(store, engine) == []
    assert len(engine.made) == 1, "its process may not have locked its note yet"
    monkeypatch.setattr(time, "time", lambda: NOW + 9e9)
    assert [restored(store), restored(store, engine)] == [[], []]
    assert engine.made == []
    engine.calls.clear()
    assert restored(store, engine) == []
    assert engine.calls == []


def test_missing_rules_of_the_engine_are_a_failure(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE))
    kernel.engine_rules = False
    (failure,) = restored(store)
    assert failure.startswith("the engine's own rules are missing")
    assert failure.endswith("restart the engine (systemctl restart docker)")


def test_what_the_agent_lacks_is_mended_once_the_rules_are_there_and_failures_are_named(
    store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = Change("kernel setting net.ipv4.ip_forward", "0", "1")
    failures = [Failure(NEEDS[0], "it cannot be mended")]

    def mend(_store: Store, _engine: Any) -> tuple[list[Change], list[Failure]]:
        assert kernel.table
        return [change], failures

    monkeypatch.setattr(reconcile, "mend_lacks", mend)
    store.save(held(MADE))

    def engine() -> NoReturn:
        raise DockerUnavailableError("the engine does not answer.")

    changes, failed = restore(store, engine, start=False)
    assert change in changes
    assert failed == ["it cannot be mended"]


def test_rules_that_cannot_be_looked_at_are_a_failure(
    store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(held(MADE))

    def fail() -> NoReturn:
        raise NetworkError("iptables timed out")

    monkeypatch.setattr(agent_needs, "engine_rules_exist", fail)
    (failure,) = restored(store)
    assert failure == (
        "the engine's own rules cannot be looked at (iptables timed out), so nobody knows whether containers reach what"
        " is outside until that works"
    )
    assert kernel.links == {LINK}


@pytest.mark.parametrize("start", [True, False], ids=["engine start", "timer"])
def test_rules_are_applied_before_the_engine_is_asked(store: Store, kernel: FakeNetwork, *, start: bool) -> None:
    store.save(held(MADE))
    asked: list[bool] = []

    def engine() -> NoReturn:
        asked.append(bool(kernel.table))
        raise DockerUnavailableError("the engine does not answer.")

    with pytest.MonkeyPatch.context() as patch:
        ask = NEEDS[-1]._replace(find=lambda _host: [Lack("it lacks", "it", None, "there")])
        patch.setattr(agent_needs, "NEEDS", [ask._replace(mend=lambda host, _lack: bool(host.engine()))])
        restore(store, engine, start=start)
    assert len(asked) > 1
    assert all(asked)


def test_what_lives_comes_before_what_is_over(store: Store, kernel: FakeNetwork) -> None:
    store.save(held(dataclasses.replace(MADE, id=OTHER_ID, name="over"), expires_at=1.0))
    store.save(held(MADE))

    def refuse() -> NoReturn:
        assert kernel.links == {LINK}
        raise DockerUnavailableError("the engine does not answer.")

    assert restore(store, refuse, start=False)[1] == ["over: the engine does not answer."]


# ---- homes


def with_home(store: Store, session_id: str) -> None:
    store.homes.make(session_id, "main1", 12345, 23456)


def test_homes_of_sessions_that_are_gone_are_retired_and_their_removal_is_started(
    store: Store, engine: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(leftovers, "start_removal", lambda: started.append("removal"))
    store.save(held(MADE))
    with_home(store, SESSION_ID)
    assert restored(store, engine) == []
    assert (started, store.homes.has_retired()) == ([], False)
    with_home(store, OTHER_ID)
    client: Any = engine
    changes, failures = restore(store, lambda: client, start=False)
    assert (Change(f"homes of {OTHER_ID}", "of no session", None) in changes, failures) == (True, [])
    assert (store.homes.session_ids(), started) == ([SESSION_ID], ["removal"])
    # Until it has ended.
    assert restored(store, engine, start=True) == []
    assert started == ["removal"] * 2


def test_homes_that_a_container_mounts_stay(store: Store, engine: FakeDocker) -> None:
    for session_id in (SESSION_ID, OTHER_ID):
        with_home(store, session_id)
    mounting(engine, store)
    stopped(engine, "main1", state="running")
    engine.made[-1]["Labels"] = own_labels("main1", OTHER_ID)
    assert restored(store, engine) == []
    assert store.homes.session_ids() == [SESSION_ID]


def test_homes_wait_for_the_engine_and_for_no_session_that_fails(store: Store, engine: FakeDocker) -> None:
    with_home(store, OTHER_ID)
    assert restored(store) == []
    assert store.homes.session_ids() == [OTHER_ID]
    store.save(held(MADE))
    (store.folder(SESSION_ID) / "session.json").write_text("{")
    assert ["is damaged" in text for text in restored(store, engine)] == [True]
    assert store.homes.session_ids() == []


def test_homes_that_cannot_be_retired_are_a_failure(
    store: Store, engine: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_home(store, OTHER_ID)

    def refuse(*_arguments: Any) -> NoReturn:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Homes, "retire", refuse)
    assert restored(store, engine) == ["[Errno 30] Read-only file system"]


def test_host_without_homes_is_restored_as_before(store: Store, engine: FakeDocker) -> None:
    store.homes_link.unlink()
    assert restored(store, engine) == []
