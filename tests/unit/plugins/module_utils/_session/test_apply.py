"""Applying and removing an agent's slice of a session."""

from __future__ import annotations

import dataclasses
import shutil
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._docker.container import Bind
from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import Image, ImagePullError
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.isolation_policy import build_isolation_policy
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.ruleset import render
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.sync import sync_ruleset
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.table import FirewallError
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import PinnedResources
from ansible_collections.backendai.cluster.plugins.module_utils._model.environment import interface_variables
from ansible_collections.backendai.cluster.plugins.module_utils._model.image_look import HomeFolder, ImageLook
from ansible_collections.backendai.cluster.plugins.module_utils._model.images import ImageIdentity
from ansible_collections.backendai.cluster.plugins.module_utils._model.limits import ContainerLimits
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import PublishedPort
from ansible_collections.backendai.cluster.plugins.module_utils._network.container import SessionInterface
from ansible_collections.backendai.cluster.plugins.module_utils._session import apply as slicing
from ansible_collections.backendai.cluster.plugins.module_utils._session import remove as removing
from ansible_collections.backendai.cluster.plugins.module_utils._session.apply import (
    ApplyRequest,
    CommandRunsError,
    ImageMismatchError,
    InfinibandMissingError,
    KeysMissingError,
    apply_claimed,
    await_claimed,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.claim_guard import ClaimLostError
from ansible_collections.backendai.cluster.plugins.module_utils._session.contents import RenderedFiles, desired_slice
from ansible_collections.backendai.cluster.plugins.module_utils._session.end import SessionEnd
from ansible_collections.backendai.cluster.plugins.module_utils._session.host_capabilities import HostCapabilities
from ansible_collections.backendai.cluster.plugins.module_utils._session.image_access import (
    ImageAccess,
    ImageAccessError,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.remove import remove_claimed
from tests.unit.builders import GIB, IMAGE, SESSION_ID, held, plan, public_keys
from tests.unit.fake_docker import FakeDocker
from tests.unit.fake_network import FakeNetwork

OPTIONS: dict[str, Any] = {
    "resources": {"cpu": 1, "mem": GIB, "shmem": "64m"},
    "mounts": [{"source": "/mnt/a", "target": "/a"}, {"source": "/mnt/b", "target": "/b", "read_only": True}],
}
MADE = plan({"agent1": 2, "agent2": 1}, **OPTIONS)
TUNNEL = MADE.network.link if MADE.network else None
# Has a network of the engine, and no tunnel.
ALONE = plan({"agent1": 2}, **OPTIONS)
SHARED = dataclasses.replace(MADE, infiniband=True)
CONTENTS = RenderedFiles(
    hosts="127.0.0.1 localhost\n",
    ssh_config="Host *\n",
    environments={"main1": {"TOKEN": "hunter2", "BACKENDAI_CLUSTER_SIZE": "1"}, "sub1": {"TOKEN": "hunter2"}},
    keys=public_keys(MADE),
    user_keys=("ssh-ed25519 ALICE alice@laptop",),
)
SSH_FILES = ("ssh/authorized_keys", "ssh/config", "ssh/known_hosts")
ORDER = (
    *("hosts", "passwd", "group", "derived", "hostfile", "sshd_config"),
    *("ssh/config", "ssh/known_hosts", "ssh/authorized_keys", "environment"),
)
FILES = tuple(sorted(ORDER))

HOST = HostCapabilities({"nofile": 20000, "memlock": -1}, frozenset({"GPU-aaaa"}), ("/dev/infiniband/uverbs0",))


def apply(
    engine: FakeDocker, store: Store, nonce: str = "nonce-1", *, check_mode: bool = False, **changes: Any
) -> list[Change]:
    """Apply the plan that the agent has stored."""
    client: Any = engine
    stored = store.session(SESSION_ID)
    request = ApplyRequest(
        stored.plan if stored else MADE, "agent1", nonce, CONTENTS._replace(**changes), "backendai-default"
    )
    return apply_claimed(client, store, request, check_mode=check_mode)[0]


def subjects(changes: list[Change], store: Store) -> list[str]:
    return [change.subject.replace(str(store.folder(SESSION_ID)), "…") for change in changes]


EVERYTHING = [
    *(f"file …/{hostname}/{name}" for hostname in ("main1", "sub1") for name in ORDER),
    "firewall table inet backendai",
    f"link {MADE.network and MADE.network.link}",
    "container backendai-train-llm-main1",
    "container backendai-train-llm-sub1",
]


def test_claimed_slice_is_created(engine: FakeDocker, store: Store, kernel: FakeNetwork) -> None:
    store.save(held(MADE, expires_at=9e12))
    assert subjects(apply(engine, store), store) == EVERYTHING
    assert len(kernel.links) == 1
    assert [container["State"] for container in engine.made] == ["running", "running"]
    for hostname in ("main1", "sub1"):
        folder = store.kernel_folder(SESSION_ID, hostname)
        assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == list(FILES)


def test_slice_with_macvlans_has_no_network_of_the_engine(
    engine: FakeDocker, store: Store, kernel: FakeNetwork
) -> None:
    store.save(held(MADE, expires_at=9e12))
    apply(engine, store)
    assert (engine.joined, len(kernel.links)) == ([], 1)
    for request in engine.asked:
        assert request["HostConfig"]["NetworkMode"] == "backendai-default"
        assert (request["NetworkingConfig"], request.get("MacAddress")) == ({"EndpointsConfig": {}}, None)
    assert {container.hostname: container.session for container in kernel.plugged} == {
        kernel_.hostname: SessionInterface("cluster0", f"{kernel_.address}/29", kernel_.mac, 1450, parent=TUNNEL)
        for kernel_ in MADE.kernels_on("agent1")
    }


def test_slice_on_one_agent_has_a_network_of_the_engine(engine: FakeDocker, store: Store) -> None:
    store.save(held(ALONE, expires_at=9e12))
    assert "network backendai-train-llm" in subjects(apply(engine, store), store)
    assert engine.calls[0] == "create network backendai-train-llm"
    modes = {request["HostConfig"]["NetworkMode"] for request in engine.asked if "HostConfig" in request}
    assert modes == {"backendai-train-llm"}


@pytest.mark.parametrize("made", [MADE, ALONE], ids=["two agents", "one agent"])
def test_healthy_slice_is_not_changed(engine: FakeDocker, store: Store, made: SessionPlan) -> None:
    store.save(held(made))
    apply(engine, store)
    engine.calls.clear()
    assert apply(engine, store) == []
    assert engine.calls == []


@pytest.mark.parametrize(
    ("hurt", "repaired"),
    [
        ("file", ["file …/sub1/hosts"]),
        ("container", ["container backendai-train-llm-sub1"]),
        (
            "network",
            [
                "network backendai-train-llm",
                # They are removed, and created again.
                *(f"container backendai-train-llm-{name}" for name in ("main1", "sub1", "main1", "sub1")),
            ],
        ),
        ("link", [f"link {MADE.network and MADE.network.link}"]),
    ],
)
def test_only_drift_is_repaired(
    engine: FakeDocker, store: Store, kernel: FakeNetwork, hurt: str, repaired: list[str]
) -> None:
    store.save(held(ALONE if hurt == "network" else MADE))
    apply(engine, store)
    if hurt == "file":
        (store.kernel_folder(SESSION_ID, "sub1") / "hosts").write_text("x")
    elif hurt == "container":
        engine.made[1]["State"] = "exited"
    elif hurt == "network":
        engine.joined.clear()
    else:
        kernel.links.clear()
    assert subjects(apply(engine, store), store) == repaired
    assert apply(engine, store) == []


@pytest.mark.parametrize("exists", [True, False], ids=["exited", "removed"])
def test_started_command_never_runs_again(engine: FakeDocker, store: Store, exists: bool) -> None:
    store.save(held(MADE))
    apply(engine, store)
    store.start_marker(SESSION_ID).touch()
    if exists:
        engine.made[0]["State"] = "exited"
    else:
        del engine.made[0]
    engine.made[-1]["State"] = "exited"
    assert subjects(apply(engine, store), store) == ["container backendai-train-llm-sub1"]


@pytest.mark.parametrize("hurt", ["missing", "changed"])
def test_a_network_is_recreated_with_its_containers_as_check_mode_says(
    engine: FakeDocker, store: Store, hurt: str
) -> None:
    store.save(held(ALONE))
    apply(engine, store)
    break_network(engine, hurt)
    engine.calls.clear()
    announced = apply(engine, store, check_mode=True)
    assert engine.calls == []
    assert [(change.subject, change.before, bool(change.after)) for change in announced] == [
        ("network backendai-train-llm", None if hurt == "missing" else "backendai-train-llm", True),
        ("container backendai-train-llm-main1", "running", False),
        ("container backendai-train-llm-sub1", "running", False),
        ("container backendai-train-llm-main1", None, True),
        ("container backendai-train-llm-sub1", None, True),
    ]
    assert apply(engine, store) == announced
    assert [container["State"] for container in engine.made] == ["running", "running"]
    assert apply(engine, store) == []


def break_network(engine: FakeDocker, hurt: str) -> None:
    """Let the network of the session be missing, or be another than that of the plan."""
    if hurt == "missing":
        engine.joined.clear()
    else:
        engine.joined[0]["Labels"][labels.DIGEST] = "another"


@pytest.mark.parametrize("hurt", ["missing", "changed"])
@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize("state", ["running", "paused"])
def test_no_container_ends_for_a_network_while_a_command_runs_in_it(
    engine: FakeDocker, store: Store, hurt: str, check_mode: bool, state: str
) -> None:
    store.save(held(ALONE))
    apply(engine, store)
    store.start_marker(SESSION_ID).touch()
    engine.made[0]["State"] = state
    break_network(engine, hurt)
    engine.calls.clear()
    with pytest.raises(CommandRunsError) as refused:
        apply(engine, store, check_mode=check_mode)
    assert str(refused.value) == (
        "the network backendai-train-llm on agent1 cannot be made again while the command of main1 runs: wait until"
        " that has ended, or end the session"
    )
    assert engine.calls == []


def test_a_container_whose_command_has_ended_stays_when_its_network_is_recreated(
    engine: FakeDocker, store: Store
) -> None:
    store.save(held(ALONE))
    apply(engine, store)
    store.start_marker(SESSION_ID).touch()
    engine.made[0]["State"] = "exited"
    break_network(engine, "missing")
    engine.calls.clear()
    announced = apply(engine, store, check_mode=True)
    assert subjects(announced, store) == ["network backendai-train-llm", *["container backendai-train-llm-sub1"] * 2]
    assert apply(engine, store) == announced
    assert [container["State"] for container in engine.made] == ["exited", "running"]
    assert not [call for call in engine.calls if call.endswith("main1")]


@pytest.mark.parametrize("changed", ["network", "main1"])
def test_lost_output_of_replaced_containers_is_returned(engine: FakeDocker, store: Store, changed: str) -> None:
    store.save(held(ALONE))
    apply(engine, store)
    (engine.joined if changed == "network" else engine.made)[0]["Labels"][labels.DIGEST] = "another"
    (store.root / "output").touch()
    client: Any = engine
    request = ApplyRequest(ALONE, "agent1", "nonce-1", CONTENTS, "backendai-default")
    _changes, _ready, lost = apply_claimed(client, store, request, check_mode=False)
    assert [*lost] == (["main1", "sub1"] if changed == "network" else ["main1"])


@pytest.mark.parametrize("claimed_before", [True, False], ids=["claimed", "not claimed"])
def test_check_mode_returns_all_changes_and_applies_none(
    engine: FakeDocker, store: Store, kernel: FakeNetwork, claimed_before: bool
) -> None:
    if claimed_before:
        store.save(held(MADE, expires_at=9e12))
    assert subjects(apply(engine, store, check_mode=True), store) == EVERYTHING
    assert engine.calls == []
    assert kernel.links == set()
    assert not store.kernel_folder(SESSION_ID, "main1").exists()


def test_changes_contain_no_secret(engine: FakeDocker, store: Store) -> None:
    store.save(held(MADE))
    assert "hunter2" not in str(apply(engine, store))
    assert "hunter3" not in str(apply(engine, store, environments={"main1": {"TOKEN": "hunter3"}, "sub1": {}}))


def test_missing_image_fails_before_anything_is_created(store: Store) -> None:
    engine = FakeDocker({})
    store.save(held(MADE, expires_at=9e12))
    with pytest.raises(ImagePullError) as refused:
        apply(engine, store)
    assert str(refused.value) == "session_image: 'lab/python:1' is not on agent1"
    assert engine.calls == []


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (
            None,
            f"the session {SESSION_ID} is not claimed on this agent: its claim expired, or was removed",
        ),
        (
            {"nonce": "nonce-2", "expires_at": 9e12},
            "session_name: 'train-llm' was taken over by a later run, so this one stops",
        ),
    ],
    ids=["removed", "taken over"],
)
def test_run_without_claim_changes_nothing(
    engine: FakeDocker, store: Store, state: dict[str, Any] | None, sentence: str
) -> None:
    if state:
        store.save(held(MADE, **state))
    with pytest.raises(ClaimLostError) as refused:
        apply(engine, store)
    assert str(refused.value) == sentence
    assert engine.calls == []


@pytest.mark.parametrize(
    ("state", "nonce", "removed"),
    [
        ({}, None, True),
        ({"expires_at": 9e12}, None, True),
        ({"expires_at": 9e12}, "nonce-1", True),
        ({"expires_at": 9e12}, "nonce-2", False),
        ({}, "nonce-1", True),
        ({"nonce": "nonce-0"}, "nonce-1", False),
    ],
    ids=[
        "end",
        "end of a creation",
        "rollback",
        "rollback after another took over",
        "rollback of what this run committed",
        "rollback of what an earlier run committed",
    ],
)
def test_only_termination_removes_sessions_of_other_runs(
    engine: Any, store: Store, kernel: FakeNetwork, state: dict[str, Any], nonce: str | None, removed: bool
) -> None:
    store.save(held(MADE, expires_at=9e12))
    apply(engine, store)
    store.save(held(MADE, **state))
    changes = remove_claimed(engine, store, SESSION_ID, nonce, check_mode=False)
    assert bool(changes) is removed
    assert (store.session(SESSION_ID) is None) is removed
    assert (not engine.made and not engine.joined and not kernel.links) is removed


@pytest.mark.parametrize(
    ("made", "network"),
    [(MADE, []), (ALONE, [Change("network backendai-train-llm", "id-backendai", None)])],
    ids=["two agents", "one agent"],
)
def test_removal_is_complete_and_repeatable(
    engine: Any, store: Store, kernel: FakeNetwork, tmp_path: Path, made: SessionPlan, network: list[Change]
) -> None:
    store.save(held(made))
    apply(engine, store)
    changes = remove_claimed(engine, store, SESSION_ID, None, check_mode=False)
    assert changes == [
        Change("container backendai-train-llm-main1", "running", None),
        Change("container backendai-train-llm-sub1", "running", None),
        *network,
        Change("session train-llm", "held", None),
    ]
    assert (engine.made, engine.joined, kernel.links) == ([], [], set())
    assert list((tmp_path / "sessions").iterdir()) == []
    assert remove_claimed(engine, store, SESSION_ID, None, check_mode=False) == []


def test_restoring_beside_a_removal_does_not_bring_back_its_rules(
    engine: Any, store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restoring runs every few seconds, and applies the rules of all stored sessions."""
    store.save(held(MADE))
    apply(engine, store)
    beside: list[threading.Thread] = []
    removes = store.remove

    def remove_later(session_id: str) -> bool:
        beside.append(threading.Thread(target=sync_ruleset, args=(store,), kwargs={"check_mode": False}))
        beside[0].start()
        # Without a lock it takes milliseconds.
        beside[0].join(1)
        return removes(session_id)

    monkeypatch.setattr(store, "remove", remove_later)
    remove_claimed(engine, store, SESSION_ID, None, check_mode=False)
    beside[0].join()
    assert kernel.table == render(build_isolation_policy([], routed=()), None, ["eth0"])


def test_removal_of_what_is_not_there_leaves_the_rules_alone(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim removes what an earlier one may have left; mostly there is nothing."""
    monkeypatch.setattr(removing, "apply_ruleset", None)
    assert remove_claimed(engine, store, SESSION_ID, None, check_mode=False) == []


def test_removal_is_repeatable_after_a_firewall_error(
    engine: Any, store: Store, kernel: FakeNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(held(ALONE))
    apply(engine, store)

    def refuse(_wanted: str) -> None:
        raise FirewallError("nft: Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(kernel, "apply_table", refuse)
        with pytest.raises(FirewallError):
            remove_claimed(engine, store, SESSION_ID, None, check_mode=False)
    assert store.session(SESSION_ID)
    assert ALONE.network
    assert ALONE.network.bridge
    assert ALONE.network.bridge in kernel.table
    assert remove_claimed(engine, store, SESSION_ID, None, check_mode=False) == [
        Change("session train-llm", "held", None)
    ]
    assert ALONE.network.bridge not in kernel.table


def test_a_container_that_lost_its_name_is_removed_with_its_session(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    apply(engine, store)
    dead = engine.made[0]
    dead |= {"Names": [], "State": "dead"}
    changes = remove_claimed(engine, store, SESSION_ID, None, check_mode=False)
    assert f"container {dead['Id']}" in [change.subject for change in changes]
    assert engine.made == []


def test_removal_in_check_mode_only_returns_changes(engine: Any, store: Store) -> None:
    store.save(held(ALONE))
    apply(engine, store)
    engine.calls.clear()
    changes = remove_claimed(engine, store, SESSION_ID, None, check_mode=True)
    assert [change.subject for change in changes] == [
        "container backendai-train-llm-main1",
        "container backendai-train-llm-sub1",
        "network backendai-train-llm",
        "session train-llm",
    ]
    assert engine.calls == []
    assert store.session(SESSION_ID) is not None


@pytest.mark.parametrize("check_mode", [True, False], ids=["check mode", "applied"])
def test_what_only_has_the_labels_of_a_session_is_neither_asked_nor_removed(
    engine: Any, store: Store, check_mode: bool
) -> None:
    """Such as what runs from an image that was made of main1."""
    store.save(held(ALONE))
    apply(engine, store)
    saved = {**engine.made[0], "Id": "saved", "Names": ["/saved"], "Labels": dict(engine.made[0]["Labels"])}
    strange = {**engine.joined[0], "Id": "strange-network", "Name": "strange"}
    engine.made.append(saved)
    engine.joined.append(strange)
    engine.calls.clear()
    end = SessionEnd()
    changes = remove_claimed(engine, store, SESSION_ID, None, end=end, check_mode=check_mode)
    assert {change.subject for change in changes}.isdisjoint({"container saved", "network strange"})
    assert not [call for call in engine.calls if "saved" in call or "strange" in call]
    assert (saved in engine.made, saved["State"], strange in engine.joined) == (True, "running", True)
    assert len(engine.made) == (3 if check_mode else 1)


def test_the_network_of_a_session_whose_folder_was_lost_goes_once_nothing_has_its_files(
    engine: Any, store: Store, kernel: FakeNetwork, tmp_path: Path
) -> None:
    store.save(held(ALONE))
    apply(engine, store)
    there = [entry["Id"] for entry in (*engine.made, *engine.joined)]
    for entry in engine.made:
        entry["Mounts"] = [{"Source": str(tmp_path / "sessions" / SESSION_ID / "main1")}]
    shutil.rmtree(tmp_path / "sessions" / SESSION_ID)
    links = {*kernel.links}
    assert remove_claimed(engine, store, SESSION_ID, None, check_mode=False) == []
    assert [entry["Id"] for entry in (*engine.made, *engine.joined)] == there
    assert kernel.links == links
    # The operator has removed the containers, which are nobody's now.
    engine.made.clear()
    assert remove_claimed(engine, store, SESSION_ID, None, check_mode=True) == []
    changes = remove_claimed(engine, store, SESSION_ID, None, check_mode=False)
    assert [change.subject for change in changes] == ["network backendai-train-llm"]
    assert engine.joined == []


def test_containers_match_the_plan(store: Store) -> None:
    pinned = {
        "main1": PinnedResources([0], {"lab.device": ["/dev/fuse", "/dev/net/tun"]}),
        "sub1": PinnedResources([3]),
    }
    images = {IMAGE: Image("sha256:1", {"PATH": "/bin"})}
    desired = desired_slice(store, held(ALONE, pinned=pinned), CONTENTS, images, "backendai-default", HOST)
    main, sub = desired.containers
    folder = store.kernel_folder(SESSION_ID, "main1")
    assert (main.name, main.hostname, main.image) == ("backendai-train-llm-main1", "main1", "lab/python:1")
    assert main.explicit_environment == {"TOKEN": "hunter2", "BACKENDAI_CLUSTER_SIZE": "1"}
    assert main.image_environment == {"PATH": "/bin"}
    assert main.kit == store.kit()
    homes = store.homes.folder(SESSION_ID, "main1")
    assert main.binds == (
        Bind(str(folder), "/run/backendai"),
        *(Bind(f"{folder}/{name}", f"/etc/{name}") for name in ("hosts", "passwd", "group")),
        Bind(f"{homes}/own", "/var/lib/backendai", read_only=False),
        Bind(f"{homes}/log", "/var/log/backendai", read_only=False),
        Bind("/mnt/a", "/a", read_only=False),
        Bind("/mnt/b", "/b"),
    )
    assert (main.uid, main.gid) == (MADE.uid, MADE.gid)
    assert (main.cpus, sub.cpus) == ((0,), (3,))
    assert (main.devices, sub.devices) == (("/dev/fuse", "/dev/net/tun"), ())
    assert (main.memory, main.shm_size) == (GIB, 64 << 20)
    assert (main.default_network, main.network) == ("backendai-default", "backendai-train-llm")
    assert (main.address, main.mac) == (ALONE.kernels[0].address, ALONE.kernels[0].mac)
    assert main.labels == {
        "ai.backend.owner": "backendai.cluster",
        "ai.backend.session-id": SESSION_ID,
        "ai.backend.session-name": "train-llm",
        "ai.backend.kernel-id": SESSION_ID,
        "ai.backend.cluster-host": "main1",
        "ai.backend.nonce": "nonce-1",
        "ai.backend.image-digest": "sha256:1",
        "ai.backend.folder": "/",
    }


def test_limits_depend_on_the_cores_of_a_container(store: Store) -> None:
    session = held(MADE, pinned={"main1": PinnedResources([0]), "sub1": PinnedResources([1, 2, 3])})
    images = {IMAGE: Image("sha256:1", {})}
    limits = ContainerLimits(pids=1000, pids_per_core=10)
    desired = desired_slice(store, session, CONTENTS, images, "backendai-default", HOST, limits)
    assert [container.pids for container in desired.containers] == [1010, 1030]
    desired = desired_slice(store, session, CONTENTS, images, "backendai-default", HOST)
    assert [container.pids for container in desired.containers] == [4608, 5632]


@pytest.mark.parametrize(
    ("driver", "log_bytes", "limited"),
    [("json-file", 20 << 20, True), ("local", 1 << 20, True), ("journald", 20 << 20, False), ("json-file", 0, False)],
)
def test_logs_in_files_are_limited(
    engine: FakeDocker, store: Store, monkeypatch: pytest.MonkeyPatch, driver: str, log_bytes: int, limited: bool
) -> None:
    monkeypatch.setattr(slicing, "read_host", lambda _client: dataclasses.replace(HOST, log_driver=driver))
    store.save(held(MADE))
    client: Any = engine
    limits = ContainerLimits(log_bytes=log_bytes, pids=0)
    request = ApplyRequest(MADE, "agent1", "nonce-1", CONTENTS, "backendai-default", limits=limits)
    apply_claimed(client, store, request, check_mode=False)
    log = {"Type": driver, "Config": {"max-size": str(log_bytes), "max-file": "5"}} if limited else None
    hosts = [created["HostConfig"] for created in engine.asked if "HostConfig" in created]
    assert [(host.get("PidsLimit"), host.get("LogConfig")) for host in hosts] == [(None, log)] * 2


def test_a_container_gets_the_files_and_programs_that_its_image_lacks(store: Store) -> None:
    home = HomeFolder(0, 0, 0o755)
    bare = ImageLook(
        passwd="root:x:0:0::/root:/bin/sh\n", clients=("ssh", "scp"), leads={"/home/work": "/var/home/work"}
    )
    images = {IMAGE: Image("sha256:1", {}, look=bare)}
    main = desired_slice(store, held(MADE), CONTENTS, images, "backendai-default", HOST).containers[0]
    kit, own = store.kit(), store.homes.folder(SESSION_ID, "main1")
    assert main.image_binds == (
        Bind(f"{kit}/etc/empty", "/etc/hosts.allow"),
        Bind(f"{kit}/etc/empty", "/etc/hosts.deny"),
        Bind(f"{kit}/etc/profile.sh", "/etc/profile.d/backendai.sh"),
        Bind(f"{kit}/bin/ssh", "/usr/bin/ssh"),
        Bind(f"{kit}/bin/scp", "/usr/bin/scp"),
        Bind(f"{own}/home", "/home/work", read_only=False),
    )
    assert main.leads == bare.leads
    for folder, bound in ((home, True), (dataclasses.replace(home, uid=MADE.uid), False)):
        images = {IMAGE: Image("sha256:1", {}, look=dataclasses.replace(bare, home=folder))}
        desired = desired_slice(store, held(MADE), CONTENTS, images, "backendai-default", HOST)
        assert (Bind(f"{own}/home", "/home/work", read_only=False) in desired.containers[0].image_binds) is bound
    passwd = next(file for file in desired.files if file.path.name == "passwd")
    assert passwd.content == (
        f"root:x:0:0::/root:/bin/sh\nwork:x:{MADE.uid}:{MADE.gid}::/home/work:/opt/backendai/shell/bash\n"
    )
    assert passwd.in_place, "the container mounts the file, not its name"


def test_infiniband_nodes_are_passed_to_containers(store: Store) -> None:
    pinned = {"main1": PinnedResources([0], {"lab.device": ["/dev/fuse"]}), "sub1": PinnedResources([3])}
    images = {IMAGE: Image("sha256:1", {})}
    desired = desired_slice(store, held(SHARED, pinned=pinned), CONTENTS, images, "backendai-default", HOST)
    assert [(container.devices, container.infiniband) for container in desired.containers] == [
        (("/dev/fuse",), ("/dev/infiniband/uverbs0",)),
        ((), ("/dev/infiniband/uverbs0",)),
    ]
    nodes = {name: store.kernel_folder(SESSION_ID, name) / "nodes" for name in ("main1", "sub1")}
    assert [container.nodes for container in desired.containers] == [
        {
            "/dev/fuse": f"{nodes['main1']}/dev-fuse",
            "/dev/infiniband/uverbs0": f"{nodes['main1']}/dev-infiniband-uverbs0",
        },
        {"/dev/infiniband/uverbs0": f"{nodes['sub1']}/dev-infiniband-uverbs0"},
    ]


def test_session_without_infiniband_gets_no_nodes(store: Store) -> None:
    images = {IMAGE: Image("sha256:1", {})}
    desired = desired_slice(store, held(MADE), CONTENTS, images, "backendai-default", HOST)
    assert [container.infiniband for container in desired.containers] == [None, None]
    assert [container.nodes for container in desired.containers] == [{}, {}]


def test_containers_are_repaired_with_the_infiniband_nodes_that_exist(
    engine: FakeDocker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(held(SHARED))
    monkeypatch.setattr(slicing, "read_host", lambda _client: HOST)
    apply(engine, store)
    monkeypatch.setattr(
        slicing, "read_host", lambda _client: dataclasses.replace(HOST, infiniband=("/dev/infiniband/uverbs1",))
    )
    assert apply(engine, store) == []
    engine.made[1]["State"] = "exited"
    assert apply(engine, store)[0].before == "exited, without /dev/infiniband/uverbs0"
    (device,) = engine.asked[-1]["HostConfig"]["Devices"]
    assert device["PathInContainer"] == "/dev/infiniband/uverbs1"
    assert device["PathOnHost"] == str(store.kernel_folder(SESSION_ID, "sub1") / "nodes/dev-infiniband-uverbs1")
    assert apply(engine, store) == []


@pytest.mark.parametrize("check_mode", [True, False], ids=["check mode", "applied"])
def test_a_stopped_container_that_cannot_be_judged_is_replaced_and_not_started(
    engine: FakeDocker, store: Store, check_mode: bool
) -> None:
    store.save(held(MADE))
    apply(engine, store)
    for container in engine.made:
        container["GraphDriver"] = {"Name": "btrfs", "Data": None}
    assert apply(engine, store) == []
    stopped = engine.made[1]
    stopped["State"] = "exited"
    engine.calls.clear()
    (change,) = apply(engine, store, check_mode=check_mode)
    assert change.before == (
        "exited, without files that can be judged on this engine (what it wrote outside of the folders of its session"
        " is lost)"
    )
    relevant = [call.partition(" ")[0] for call in engine.calls if call.startswith(("remove", "create", "start"))]
    assert relevant == ([] if check_mode else ["remove", "create", "start"])


def test_container_is_not_created_without_infiniband(
    engine: FakeDocker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(held(SHARED))
    monkeypatch.setattr(slicing, "read_host", lambda _client: HOST)
    apply(engine, store)
    monkeypatch.setattr(slicing, "read_host", lambda _client: dataclasses.replace(HOST, infiniband=()))
    assert apply(engine, store) == []
    engine.made[1]["State"] = "exited"
    before = list(engine.made)
    with pytest.raises(InfinibandMissingError) as refused:
        apply(engine, store)
    assert str(refused.value) == (
        "session_infiniband: agent1 no longer has /dev/infiniband/uverbs*, so no container can be created there: load"
        " the driver of its InfiniBand card"
    )
    assert engine.made == before


@pytest.mark.parametrize("check_mode", [True, False], ids=["check mode", "applied"])
def test_a_container_that_has_lost_its_gpu_is_recreated(
    engine: FakeDocker, store: Store, monkeypatch: pytest.MonkeyPatch, check_mode: bool
) -> None:
    store.save(held(MADE))
    apply(engine, store)
    engine.calls.clear()
    monkeypatch.setattr(slicing, "lost_nodes", lambda *_of: {"main1": "/dev/nvidia0, /dev/nvidiactl"})
    (change,) = apply(engine, store, check_mode=check_mode)
    assert (change.subject, change.before) == (
        "container backendai-train-llm-main1",
        "running, without /dev/nvidia0, /dev/nvidiactl",
    )
    recreated = ["remove id-backendai-train-llm-main1", "create backendai-train-llm-main1"]
    assert [call for call in engine.calls if call in recreated] == ([] if check_mode else recreated)


def test_containers_that_the_hook_gives_gpus_get_the_nodes_of_theirs(
    engine: FakeDocker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = {"GPU-aaaa": ("/dev/nvidia0", "/dev/nvidiactl"), "GPU-bbbb": ("/dev/nvidia1", "/dev/nvidiactl")}
    monkeypatch.setattr(slicing, "read_host", lambda _client: HostCapabilities(gpu_nodes=nodes))
    gpus = [*nodes]
    store.save(held(MADE, pinned={"main1": PinnedResources([0], {"cuda.device": gpus}), "sub1": PinnedResources([3])}))
    apply(engine, store)
    main, sub = (call["HostConfig"]["Devices"] for call in containers_asked(engine))
    assert [device["PathOnHost"] for device in main] == ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia1"]
    assert sub == []


def test_containers_get_the_host_capabilities(
    engine: FakeDocker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slicing, "read_host", lambda _client: HOST)
    store.save(
        held(MADE, pinned={"main1": PinnedResources([0], {"cuda.device": ["GPU-aaaa"]}), "sub1": PinnedResources([3])})
    )
    apply(engine, store)
    main, sub = (call["HostConfig"] for call in containers_asked(engine))
    limits = [("nofile", 20000, 20000), ("memlock", -1, -1)]
    assert [[tuple(limit.values()) for limit in host["Ulimits"]] for host in (main, sub)] == [limits, limits]
    assert main["DeviceRequests"][0]["Driver"] == "cdi"
    assert sub["DeviceRequests"] == []
    # Reduced host capabilities do not change existing containers.
    monkeypatch.setattr(slicing, "read_host", lambda _client: HostCapabilities())
    assert apply(engine, store) == []


def containers_asked(engine: FakeDocker) -> list[dict[str, Any]]:
    """Return what the engine was asked for containers, by name: they are created in parallel."""
    return sorted((call for call in engine.asked if "HostConfig" in call), key=lambda call: str(call["name"]))


def mixed() -> SessionPlan:
    """Return the plan with another image and other resources for sub1."""
    main, sub, *others = MADE.kernels
    other = dataclasses.replace(sub, image="lab/busybox:1", resources={"cpu": 2, "mem": 2 * GIB})
    return dataclasses.replace(MADE, kernels=(main, other, *others))


def test_each_container_has_the_image_and_the_resources_of_its_kernel(store: Store) -> None:
    images = {IMAGE: Image("sha256:1", {"PATH": "/bin"}), "lab/busybox:1": Image("sha256:2", {"A": "b"})}
    desired = desired_slice(store, held(mixed()), CONTENTS, images, "backendai-default", HOST)
    main, sub = desired.containers
    assert (main.image, main.image_environment, main.memory, main.shm_size) == (IMAGE, {"PATH": "/bin"}, GIB, 64 << 20)
    assert (sub.image, sub.image_environment, sub.memory, sub.shm_size) == ("lab/busybox:1", {"A": "b"}, 2 * GIB, None)
    assert (main.omp_threads, sub.omp_threads) == (1, 2)
    lists = {file.path.parent.name: file.content for file in desired.files if file.path.name == "hostfile"}
    assert lists == dict.fromkeys(["main1", "sub1"], "main1 slots=1\nsub1 slots=2\nsub2 slots=1\n")
    assert [container.labels[labels.IMAGE_DIGEST] for container in (main, sub)] == ["sha256:1", "sha256:2"]


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
def test_image_mismatch_between_agents_fails(engine: FakeDocker, store: Store, check_mode: bool) -> None:
    store.save(held(MADE, expires_at=9e12))
    client: Any = engine
    # The image that this agent has now counts, not the one it reported earlier.
    reported = {agent: {IMAGE: ImageIdentity("sha256:2", "sha256:2")} for agent in ("agent1", "agent2")}
    with pytest.raises(ImageMismatchError) as refused:
        apply_claimed(
            client,
            store,
            ApplyRequest(MADE, "agent1", "nonce-1", CONTENTS, "backendai-default", reported),
            check_mode=check_mode,
        )
    assert str(refused.value) == (
        "session_image: 'lab/python:1' is not the same on all agents: sha256:1… on agent1, sha256:2… on agent2;"
        " remove the outdated one (docker rmi) or specify the image by its digest"
    )
    assert (engine.calls, [path.name for path in store.folder(SESSION_ID).iterdir()]) == ([], ["session.json"])


def test_missing_image_is_no_mismatch_in_check_mode(store: Store) -> None:
    client: Any = FakeDocker({})
    reported = {"agent2": {IMAGE: ImageIdentity("sha256:2", "sha256:2")}}
    store.save(held(MADE, expires_at=9e12))
    request = ApplyRequest(MADE, "agent1", "nonce-1", CONTENTS, "backendai-default", reported)
    assert apply_claimed(client, store, request, check_mode=True)[0]


def test_every_image_of_a_slice_is_looked_up_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    image = {"Id": "sha256:1", "Config": {"Env": []}}
    engine = FakeDocker({IMAGE: image, "lab/busybox:1": image})
    looked_up: list[str] = []
    inspect = engine.inspect_image

    def inspect_image(name: str) -> dict[str, Any]:
        looked_up.append(name)
        return inspect(name)

    monkeypatch.setattr(engine, "inspect_image", inspect_image)
    store.save(held(MADE, expires_at=9e12))
    apply(engine, store)
    assert looked_up == [IMAGE]
    looked_up.clear()
    store.save(held(mixed(), expires_at=9e12))
    apply(engine, store)
    assert looked_up == [IMAGE, "lab/busybox:1"]


# ---- private images


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, store: Store) -> list[tuple[ImageAccess, list[str]]]:
    """Return the questions whether the requester may use images; none may be used."""
    questions: list[tuple[ImageAccess, list[str]]] = []

    def refuse(_client: Any, _store: Store, access: ImageAccess, names: Iterable[str]) -> None:
        assert not store.is_busy(SESSION_ID)
        questions.append((access, list(names)))
        raise ImageAccessError("no")

    monkeypatch.setattr(slicing, "require_image_access", refuse)
    return questions


@pytest.mark.parametrize("session", [MADE, mixed()], ids=["one image", "two images"])
def test_session_without_access_to_its_images_is_not_created(
    engine: FakeDocker, store: Store, asked: list[tuple[ImageAccess, list[str]]], session: SessionPlan
) -> None:
    store.save(held(session, expires_at=9e12))
    client: Any = engine
    access = ImageAccess(registry_check=["docker.io"])
    request = ApplyRequest(session, "agent1", "nonce-1", CONTENTS, "backendai-default", access=access)
    with pytest.raises(ImageAccessError):
        apply_claimed(client, store, request, check_mode=False)
    assert asked == [(access, list(dict.fromkeys(kernel.image for kernel in session.kernels_on("agent1"))))]
    assert (engine.calls, [path.name for path in store.folder(SESSION_ID).iterdir()]) == ([], ["session.json"])


def test_repair_and_check_mode_ask_no_registry(
    engine: FakeDocker, store: Store, asked: list[tuple[ImageAccess, list[str]]]
) -> None:
    store.save(held(MADE, expires_at=9e12))
    assert apply(engine, store, check_mode=True)
    store.save(held(MADE))
    assert apply(engine, store)
    assert asked == []


def test_another_run_is_not_asked_for_images(
    engine: FakeDocker, store: Store, asked: list[tuple[ImageAccess, list[str]]]
) -> None:
    store.save(held(MADE, expires_at=9e12))
    with pytest.raises(ClaimLostError):
        apply(engine, store, "nonce-2")
    assert asked == []


def test_missing_image_is_named(store: Store) -> None:
    store.save(held(mixed(), expires_at=9e12))
    with pytest.raises(ImagePullError, match=r"^session_image: 'lab/busybox:1' is not on agent1$"):
        apply(FakeDocker(), store)


def test_what_is_not_in_each_image_anyway_is_readable_by_the_user_alone(store: Store) -> None:
    desired = desired_slice(store, held(MADE), CONTENTS, {IMAGE: Image("sha256:1", {})}, "backendai-default", HOST)
    folder = store.kernel_folder(SESSION_ID, "main1")
    files = {str(file.path.relative_to(folder)): file for file in desired.files if folder in file.path.parents}
    assert tuple(sorted(files)) == FILES
    readable = dict.fromkeys(("hosts", "passwd", "group"), "0o644")
    assert {name: oct(file.mode) for name, file in files.items() if file.mode != 0o640} == readable
    assert [name for name, file in files.items() if file.secret] == ["environment"]
    assert str(files["ssh/authorized_keys"].content).splitlines()[-1] == "ssh-ed25519 ALICE alice@laptop"
    assert len(str(files["ssh/known_hosts"].content).splitlines()) == 3


def test_single_container_session_has_no_network_or_link(store: Store) -> None:
    alone = plan({"agent1": 1})
    desired = desired_slice(
        store,
        held(alone),
        CONTENTS._replace(keys=public_keys(alone)),
        {IMAGE: Image("sha256:1", {})},
        "backendai-default",
        HOST,
    )
    assert desired.network is None
    assert (desired.containers[0].network, desired.containers[0].address, desired.containers[0].mac) == (
        None,
        None,
        None,
    )


def test_contents_are_read_from_module_options() -> None:
    options = {
        "hosts": CONTENTS.hosts,
        "ssh_config": CONTENTS.ssh_config,
        "environments": CONTENTS.environments,
        "public_keys": {hostname: dataclasses.asdict(keys) for hostname, keys in CONTENTS.keys.items()},
        "user_keys": list(CONTENTS.user_keys),
        "bootstrap": "export A=1",
        "state": "present",
    }
    assert RenderedFiles.from_options(options) == CONTENTS._replace(bootstrap="export A=1")


def test_user_scripts_are_secret_files_of_the_containers_that_run_them(store: Store) -> None:
    batch_plan = plan(
        {"agent1": 2},
        apps=[{"name": "web", "port": 80, "command": "serve", "path": "keep"}, {"name": "own", "port": 81}],
        command="train",
    )
    origins = ("https://door:8443", "https://other")
    batch_plan = dataclasses.replace(batch_plan, published=(dataclasses.replace(WAYS[1], origins=origins),))
    contents = CONTENTS._replace(keys=public_keys(batch_plan), bootstrap="export A=1")
    desired = desired_slice(
        store, held(batch_plan), contents, {IMAGE: Image("", {})}, "backendai-default", HostCapabilities()
    )
    scripts = {
        str(file.path.relative_to(store.folder(SESSION_ID))): (file.content, file.mode, file.secret)
        for file in desired.files
        if file.path.name in ("bootstrap", "command", "web", "own")
    }
    assert scripts == {
        "main1/bootstrap": ("export A=1", 0o640, True),
        "main1/command": ("train", 0o640, True),
        "main1/apps/web": (
            "export BACKENDAI_APP_BASE_URL=/s/train-llm/web BACKENDAI_APP_ORIGINS=https://door:8443,https://other\nserve",
            0o640,
            True,
        ),
        "sub1/bootstrap": ("export A=1", 0o640, True),
    }


def test_main1_has_a_list_of_the_programs_that_its_apps_need(store: Store) -> None:
    apps = [
        {"name": "notebook", "port": 80, "command": "serve", "program": "jupyter-lab"},
        {"name": "own", "port": 81, "command": "serve"},
    ]
    made = plan({"agent1": 2}, apps=apps)
    contents = CONTENTS._replace(keys=public_keys(made))
    desired = desired_slice(
        store, held(made), contents, {IMAGE: Image("", {})}, "backendai-default", HostCapabilities()
    )
    listed = {file.path: file.content for file in desired.files if file.path.name == "programs"}
    assert listed == {store.kernel_folder(SESSION_ID, "main1") / "programs": "jupyter-lab notebook\n"}


def test_derived_variables_are_listed_unless_set_explicitly(store: Store) -> None:
    environments = {"main1": {"BACKENDAI_CLUSTER_SIZE": "1"}, "sub1": {"MASTER_PORT": "1", **SIZE_2}}
    contents = CONTENTS._replace(environments=environments)
    image = Image("", {"TF_CONFIG": "{}"})
    desired = desired_slice(store, held(MADE), contents, {IMAGE: image}, "backendai-default", HostCapabilities())
    assert [file.content for file in desired.files if file.path.name == "derived"] == ["", "MASTER_ADDR\n"]


def test_hosts_without_a_proxy_are_derived_again_unless_set_explicitly(store: Store) -> None:
    proxy = {"MASTER_PORT": "1", "https_proxy": "http://p:3128", **SIZE_2}
    environments = {"main1": {**proxy, "NO_PROXY": "example.com"}, "sub1": proxy}
    contents = CONTENTS._replace(environments=environments)
    image = Image("", {"TF_CONFIG": "{}"})
    desired = desired_slice(store, held(MADE), contents, {IMAGE: image}, "backendai-default", HostCapabilities())
    listed = [file.content for file in desired.files if file.path.name == "derived"]
    assert listed == ["MASTER_ADDR\n", "MASTER_ADDR\nno_proxy\nNO_PROXY\n"]


def test_containers_are_made_with_the_variables_that_name_their_interface(store: Store) -> None:
    made = dataclasses.replace(MADE, infiniband=True)
    for session in (MADE, made):
        desired = desired_slice(store, held(session), CONTENTS, {IMAGE: Image("", {})}, "x", HostCapabilities())
        assert {container.interface_names for container in desired.containers} == {interface_variables(session)}
        # What names all devices would switch RDMA off.
        assert ("UCX_NET_DEVICES" in interface_variables(session)) is not session.infiniband


SIZE_2 = {
    "BACKENDAI_CLUSTER_SIZE": "2",
    "BACKENDAI_CLUSTER_HOSTS": "main1,sub1",
    "BACKENDAI_CLUSTER_LOCAL_RANK": "1",
}


def test_waiting_for_a_start_holds_no_lock_and_renews_the_claim(
    engine: FakeDocker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waited(_client: object, names: dict[str, Path], until: float, patience: float | None) -> bool:
        assert patience is None
        assert names["backendai-train-llm-main1"] == store.homes.folder(SESSION_ID, "main1") / "own/ready"
        calls.append((sorted(names), store.is_busy(SESSION_ID), until > time.monotonic() + 20))
        return True

    calls: list[tuple[list[str], bool, bool]] = []
    monkeypatch.setattr(slicing, "await_ready", waited)
    store.save(held(MADE, expires_at=time.time() + 1))
    apply(engine, store)
    assert calls == [(["backendai-train-llm-main1", "backendai-train-llm-sub1"], False, True)]
    stored = store.session(SESSION_ID)
    assert stored is not None
    assert stored.expires_at is not None
    assert stored.expires_at.seconds_left > 50


def test_slow_start_is_left_and_awaited_later(
    engine: FakeDocker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waited(_client: object, names: dict[str, Path], until: float, patience: float | None = None) -> bool:
        calls.append((sorted(names), patience))
        assert until > time.monotonic() + 20
        return patience is None

    calls: list[tuple[list[str], float | None]] = []
    monkeypatch.setattr(slicing, "await_ready", waited)
    claimed = held(MADE, expires_at=time.time() + 31)
    store.save(claimed)
    client: Any = engine
    request = ApplyRequest(MADE, "agent1", "nonce-1", CONTENTS, "backendai-default", patience=15)
    changes, ready, _lost = apply_claimed(client, store, request, check_mode=False)
    assert (ready, len([change for change in changes if change.subject.startswith("container")])) == (False, 2)
    stored = store.session(SESSION_ID)
    assert stored is not None
    assert stored.expires_at == claimed.expires_at
    store.start_marker(SESSION_ID, "sub1").touch()
    await_claimed(client, store, SESSION_ID, "nonce-1")
    names = ["backendai-train-llm-main1", "backendai-train-llm-sub1"]
    assert calls == [(names, 15), (names[:1], None)]
    later = store.session(SESSION_ID)
    assert later is not None
    assert later.expires_at is not None
    assert later.expires_at.seconds_left > 50
    with pytest.raises(ClaimLostError):
        await_claimed(client, store, SESSION_ID, "of another run")


def test_session_removed_during_its_start_loses_the_claim(
    engine: FakeDocker, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slicing, "await_ready", lambda *_asked: store.remove(SESSION_ID) or True)
    store.save(held(MADE, expires_at=time.time() + 600))
    with pytest.raises(ClaimLostError, match="its claim expired, or was removed"):
        apply(engine, store)


WAYS = (PublishedPort("ssh", "tcp", 22, "192.0.2.1", 30001), PublishedPort("web", "http", 80, "192.0.2.1", 30000))


def ports_of(engine: FakeDocker) -> dict[str, Any]:
    """Return the published ports by hostname, as the engine's API has them."""
    return {call["Hostname"]: call["HostConfig"]["PortBindings"] for call in engine.asked if "Hostname" in call}


def bound(port: int) -> list[dict[str, str]]:
    """Return what publishes a port of a container at this one of the agent."""
    return [{"HostIp": "192.0.2.1", "HostPort": str(port)}]


def test_only_main1_publishes_ports(engine: FakeDocker, store: Store, kernel: FakeNetwork) -> None:
    published_plan = dataclasses.replace(MADE, published=WAYS, gateways=("198.51.100.7",))
    store.save(held(published_plan, expires_at=9e12))
    client: Any = engine
    apply_claimed(
        client,
        store,
        ApplyRequest(published_plan, "agent1", "nonce-1", CONTENTS, "backendai-default"),
        check_mode=False,
    )
    assert ports_of(engine) == {"main1": {"22/tcp": bound(30001), "80/tcp": bound(30000)}, "sub1": {}}
    assert kernel.table == render(build_isolation_policy([(published_plan, "agent1")], ()), None, ["eth0"])
    assert "192.0.2.1 . 30000" in kernel.table


@pytest.mark.parametrize("check_mode", [True, False])
def test_stored_plan_is_replaced_by_that_of_the_run(engine: FakeDocker, store: Store, check_mode: bool) -> None:
    store.save(held(MADE))
    apply(engine, store)
    mounts = dataclasses.replace(MADE.mounts[0], source="/", target="/mnt/host")
    changed = dataclasses.replace(MADE, mounts=(*MADE.mounts, mounts))
    store.save(dataclasses.replace(held(changed), agent="agent2"))
    before, made = store.session(SESSION_ID), len(engine.asked)
    client: Any = engine
    request = ApplyRequest(MADE, "agent1", "nonce-1", CONTENTS, "backendai-default")
    changes, _ready, _lost = apply_claimed(client, store, request, check_mode=check_mode)
    assert changes[0] == Change("plan of session train-llm", "differs from the control node's", "the same")
    assert not [change for change in changes if change.subject.startswith("container")]
    stored = store.session(SESSION_ID)
    assert stored == (before if check_mode else held(MADE))
    assert len(engine.asked) == made


def test_published_ports_of_the_plan_of_the_run_are_reserved(engine: FakeDocker, store: Store) -> None:
    store.save(held(MADE))
    published_plan = dataclasses.replace(MADE, published=WAYS, gateways=("198.51.100.7",))
    client: Any = engine
    request = ApplyRequest(published_plan, "agent1", "nonce-1", CONTENTS, "backendai-default")
    apply_claimed(client, store, request, check_mode=True)
    assert store.ports.in_use() == set()
    apply_claimed(client, store, request, check_mode=False)
    assert store.ports.by_session() == {SESSION_ID: (30000, 30001)}


def test_keys_that_another_agent_did_not_report_are_named(engine: FakeDocker, store: Store) -> None:
    store.save(held(MADE))
    keys = {hostname: each for hostname, each in public_keys(MADE).items() if hostname != "sub2"}
    with pytest.raises(KeysMissingError, match=r"^agent2 did not report the keys of sub2, which it runs: end"):
        apply(engine, store, keys=keys)
    assert engine.asked == []


@pytest.mark.parametrize("check_mode", [True, False])
def test_fresh_homes_come_with_new_containers_but_not_where_a_command_has_begun(
    engine: FakeDocker, store: Store, check_mode: bool
) -> None:
    store.save(held(plan({"agent1": 2}, command="train", command_scope="all")))
    apply(engine, store)
    store.start_marker(SESSION_ID, "sub1").touch()
    for hostname in ("main1", "sub1"):
        (store.homes.folder(SESSION_ID, hostname) / "home" / "file").touch()
    stored = store.session(SESSION_ID)
    assert stored
    request = ApplyRequest(stored.plan, "agent1", "nonce-1", CONTENTS, "backendai-default", fresh_home=True)
    client: Any = engine
    (change,) = apply_claimed(client, store, request, check_mode=check_mode)[0]
    assert (change.subject, change.before) == ("container backendai-train-llm-main1", "running, without a fresh home")
    homes = [store.homes.folder(SESSION_ID, hostname) / "home" for hostname in ("main1", "sub1")]
    assert [(home / "file").exists() for home in homes] == [check_mode, True]
    assert [home.is_dir() for home in homes] == [True, True]
