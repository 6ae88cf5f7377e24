"""Claiming an agent's part of a session against the current facts."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._docker.networks import NameTakenError
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import GpuRequest, PinnedResources
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import PublicKeys
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import PublishedPort
from ansible_collections.backendai.cluster.plugins.module_utils._session import claim as claiming
from ansible_collections.backendai.cluster.plugins.module_utils._session.agent_needs import NEEDS, Failure
from ansible_collections.backendai.cluster.plugins.module_utils._session.claim import (
    ClaimRefusedError,
    ClaimRequest,
    ClaimResult,
    SessionEndedError,
    claim,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.facts import AgentSettings, FactsQuery
from ansible_collections.backendai.cluster.plugins.module_utils._session.output import find_kept, read_kept
from ansible_collections.backendai.cluster.plugins.module_utils._session.ownership import own_containers
from ansible_collections.backendai.cluster.plugins.module_utils._session.remove import remove_claimed
from ansible_collections.backendai.cluster.plugins.module_utils._session.reply_logs import ReplyLogs
from tests.unit.builders import GIB, SESSION_ID, agent_facts, encrypted_underlay, held, own_labels, plan
from tests.unit.fake_network import FakeNetwork
from tests.unit.nvidia_smi import NvidiaSmi
from tests.unit.plugins.module_utils._session.test_logs import TIME, add

OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
MADE = plan({"agent1": 2, "agent2": 2}, resources={"cpu": 2, "mem": GIB})
SETTINGS = AgentSettings("default", True, (), {}, 1, 0, "", False)
KEYS = {name: PublicKeys(f"USER-{name}", f"HOST-{name}") for name in ("main1", "sub1")}
CHANGES = [Change("claim train-llm on agent1", None, "2 containers")]
Facts = Callable[..., None]


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> Facts:
    """Return a function that sets the facts of the agent, by default those of an empty one."""

    def set_facts(**changes: Any) -> None:
        monkeypatch.setattr(claiming, "collect_facts", lambda *_reading: agent_facts("agent1", **changes))

    set_facts()
    monkeypatch.setattr(claiming.machine, "numa_nodes", lambda cpus: dict.fromkeys(cpus, 0))
    monkeypatch.setattr(claiming, "ensure_keys", lambda folder, _kit: KEYS[folder.parent.name])
    return set_facts


def claimed(
    engine: Any,
    store: Store,
    of: SessionPlan = MADE,
    *,
    clear: Sequence[str] = (),
    nonce: str = "nonce-1",
    never_completed: bool = False,
    check_mode: bool = False,
) -> ClaimResult:
    request = ClaimRequest(of, "agent1", nonce, 600, clear, never_completed=never_completed)
    return claim(engine, store, SETTINGS, request, check_mode=check_mode)


def pinned(store: Store) -> dict[str, PinnedResources]:
    noted = store.session(SESSION_ID)
    assert noted is not None
    return noted.pinned


def another(**changes: Any) -> SessionPlan:
    """Return the plan of another session."""
    return dataclasses.replace(plan({"agent1": 1}, name="other"), id=OTHER_ID, **changes)


def plan_with_slots(**slots: int) -> SessionPlan:
    """Return the plan with these slots for sub1."""
    main, sub, *others = MADE.kernels
    wider = dataclasses.replace(sub, resources={**sub.resources, **slots})
    return dataclasses.replace(MADE, kernels=(main, wider, *others))


def device(name: str, numa: int | None = None, *, free: bool = True) -> dict[str, Any]:
    return {"slot": "tpu", "id": name, "numa": numa, "free": free}


def refusal(engine: Any, store: Store, of: SessionPlan = MADE) -> str:
    with pytest.raises(ClaimRefusedError) as refused:
        claimed(engine, store, of)
    assert store.session(SESSION_ID) is None
    return str(refused.value)


@pytest.mark.usefixtures("facts")
def test_a_request_that_is_under_way_when_its_run_rolls_back_claims_nothing(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was interrupted while the agent looked at its mounts; the run finds nothing to remove yet."""
    real = claiming.judge_mounts

    def roll_back_meanwhile(*asked: Any) -> Any:
        assert remove_claimed(engine, store, SESSION_ID, "nonce-1", check_mode=False) == []
        return real(*asked)

    monkeypatch.setattr(claiming, "judge_mounts", roll_back_meanwhile)
    assert refusal(engine, store) == "the run that asked for 'train-llm' has ended, and has rolled back"
    monkeypatch.setattr(claiming, "judge_mounts", real)
    assert claimed(engine, store, nonce="nonce-2").keys


@pytest.mark.usefixtures("facts")
def test_a_session_that_has_been_ended_is_not_claimed_any_more(engine: Any, store: Store) -> None:
    """A request of a run that was killed goes on; nobody knows its nonce."""
    assert remove_claimed(engine, store, SESSION_ID, None, check_mode=True) == []
    assert claimed(engine, store, nonce="nonce-1").keys
    assert remove_claimed(engine, store, SESSION_ID, None, check_mode=False)
    with pytest.raises(SessionEndedError, match=r"^the session 'train-llm' has been ended$"):
        claimed(engine, store)
    assert store.session(SESSION_ID) is None


@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize("applied_next", [False, True], ids=["a request of its own", "applied by the same request"])
def test_rules_are_applied_once(engine: Any, store: Store, kernel: FakeNetwork, applied_next: bool) -> None:
    """Between a claim of its own and its application may be minutes, in which nothing must be missing."""
    request = ClaimRequest(MADE, "agent1", "nonce-1", 600, applied_next=applied_next)
    claim(engine, store, SETTINGS, request, check_mode=False)
    assert bool(kernel.table) is not applied_next


@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize("check_mode", [False, True])
def test_a_claim_mends_what_its_agent_lacks(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch, check_mode: bool
) -> None:
    asked: list[Any] = []

    def mend(_store: Store, connect: Callable[[], Any]) -> tuple[list[Change], list[Failure]]:
        asked.append(connect())
        return [], []

    monkeypatch.setattr(claiming, "mend_lacks", mend)
    claimed(engine, store, check_mode=check_mode)
    assert asked == ([] if check_mode else [engine])


@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize("vital", [True, False])
def test_a_claim_is_refused_while_its_agent_lacks_what_is_vital(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch, vital: bool
) -> None:
    need = next(need for need in NEEDS if need.mend and need.vital is vital)
    failures = [Failure(need, "it lacks something, and cannot be mended (no): repair it")]
    monkeypatch.setattr(claiming, "mend_lacks", lambda *_where: ([], failures))
    if vital:
        assert refusal(engine, store) == failures[0].phrase
    else:
        assert claimed(engine, store).changes == CHANGES


@pytest.mark.usefixtures("facts")
def test_claim_is_stored_with_cores_and_a_time_limit(engine: Any, store: Store) -> None:
    assert claimed(engine, store) == ClaimResult(CHANGES, KEYS)
    noted = store.session(SESSION_ID)
    assert noted is not None
    assert (noted.plan, noted.agent, noted.nonce) == (MADE, "agent1", "nonce-1")
    assert noted.pinned == {"main1": PinnedResources([0, 1]), "sub1": PinnedResources([2, 3])}
    assert noted.expires_at is not None
    assert 0 < noted.expires_at.seconds_left <= 600


@pytest.mark.usefixtures("facts")
def test_check_mode_stores_no_claim_and_creates_no_key(engine: Any, store: Store) -> None:
    result = claimed(engine, store, check_mode=True)
    assert result.changes == CHANGES
    assert set(result.keys.values()) == {PublicKeys("(created by the agent)", "(created by the agent)")}
    assert store.sessions() == []


@pytest.mark.usefixtures("facts")
def test_later_run_takes_over_a_claim_with_its_cores_and_devices(engine: Any, store: Store) -> None:
    before = {"main1": PinnedResources([6, 7], {"tpu": ["a"]}), "sub1": PinnedResources([4, 5])}
    store.save(held(MADE, nonce="nonce-0", expires_at=time.time() + 60, pinned=before, keys={}))
    assert claimed(engine, store) == ClaimResult([], KEYS)
    noted = store.session(SESSION_ID)
    assert noted is not None
    assert (noted.nonce, noted.pinned, noted.keys) == ("nonce-1", before, KEYS)
    assert not noted.expired


@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
def test_claim_with_another_plan_is_replaced(engine: Any, store: Store, check_mode: bool) -> None:
    before = dataclasses.replace(MADE, kernels=MADE.kernels[:1])
    store.save(held(before, nonce="nonce-0", expires_at=time.time() + 60, pinned={"main1": PinnedResources([6, 7])}))
    assert claimed(engine, store, check_mode=check_mode).changes == CHANGES
    claim_options = (
        {"main1": PinnedResources([6, 7])}
        if check_mode
        else {"main1": PinnedResources([0, 1]), "sub1": PinnedResources([2, 3])}
    )
    assert pinned(store) == claim_options


@pytest.mark.usefixtures("facts")
def test_expired_claim_is_replaced(engine: Any, store: Store) -> None:
    store.save(
        held(
            MADE,
            nonce="nonce-0",
            expires_at=1.0,
            pinned={"main1": PinnedResources([6, 7]), "sub1": PinnedResources([4, 5])},
        )
    )
    (store.folder(SESSION_ID) / "remains").touch()
    assert claimed(engine, store) == ClaimResult(CHANGES, KEYS)
    assert pinned(store) == {"main1": PinnedResources([0, 1]), "sub1": PinnedResources([2, 3])}
    assert not (store.folder(SESSION_ID) / "remains").exists()


def test_expired_claim_is_refused_if_its_resources_are_allocated(engine: Any, store: Store, facts: Facts) -> None:
    store.save(held(MADE, nonce="nonce-0", expires_at=1.0))
    facts(allocated={"cpu": 5})
    assert refusal(engine, store) == "agent1 no longer has room for 2 containers of cpu 2, mem 1g"


@pytest.mark.usefixtures("facts")
def test_committed_session_is_not_changed(engine: Any, store: Store) -> None:
    before = held(MADE, nonce="nonce-0")
    store.save(before)
    assert claimed(engine, store) == ClaimResult([], before.keys)
    assert store.session(SESSION_ID) == before


@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize("check_mode", [False, True])
def test_part_committed_by_a_killed_run_is_taken_over(engine: Any, store: Store, check_mode: bool) -> None:
    before = held(MADE, nonce="nonce-0")
    store.save(before)
    request = ClaimRequest(MADE, "agent1", "nonce-1", 600, never_completed=True)
    assert claim(engine, store, SETTINGS, request, check_mode=check_mode) == ClaimResult([], before.keys)
    assert store.session(SESSION_ID) == dataclasses.replace(before, nonce="nonce-0" if check_mode else "nonce-1")


@pytest.mark.parametrize(
    ("changed_facts", "sentence"),
    [
        ({"allocated": {"cpu": 5}}, "agent1 no longer has room for 2 containers of cpu 2, mem 1g"),
        (
            {"vnis": [MADE.network.vni if MADE.network else 0]},
            f"the network identifier {MADE.network and MADE.network.vni} was taken on agent1 by another run",
        ),
        (
            {"networks": ["fd00::/8", "0.0.0.0/0", "10.128.0.1/9"]},
            f"the subnet {MADE.network and MADE.network.subnet} was taken on agent1 by another run",
        ),
        ({"underlay": None}, "agent1 no longer has the underlay address 192.0.2.1 on eth0"),
        (
            {"underlay": encrypted_underlay(1)},
            "agent1 no longer has the underlay address 192.0.2.1 on eth0",
        ),
    ],
    ids=["room", "identifier", "subnet", "underlay", "encryption"],
)
def test_plan_that_no_longer_fits_is_refused(
    engine: Any, store: Store, facts: Facts, changed_facts: dict[str, Any], sentence: str
) -> None:
    facts(**changed_facts)
    assert refusal(engine, store) == sentence


WAYS = tuple(PublishedPort("app", "tcp", port, "192.0.2.1", port) for port in (30005, 30007))
OPEN = dataclasses.replace(MADE, published=WAYS)


@pytest.mark.parametrize(("taken", "first"), [([30007], 30007), ([22, 30007, 30005], 30005)])
def test_published_port_in_use_is_refused(
    engine: Any, store: Store, facts: Facts, taken: list[int], first: int
) -> None:
    facts(tcp_ports=taken)
    assert refusal(engine, store, OPEN) == f"the port {first} was taken on agent1 by another run"


def test_published_port_in_use_is_refused_for_a_single_container(engine: Any, store: Store, facts: Facts) -> None:
    facts(tcp_ports=[30005])
    alone = dataclasses.replace(plan({"agent1": 1}), published=WAYS)
    assert refusal(engine, store, alone) == "the port 30005 was taken on agent1 by another run"


def test_ports_published_by_other_agents_are_ignored(engine: Any, store: Store, facts: Facts) -> None:
    facts(tcp_ports=[30005, 30007])
    moved = tuple(dataclasses.replace(kernel, agent="agent2") for kernel in MADE.kernels[:1])
    elsewhere = dataclasses.replace(OPEN, kernels=(*moved, *MADE.kernels[1:]))
    assert claimed(engine, store, elsewhere).changes == [Change("claim train-llm on agent1", None, "1 containers")]


def test_ports_that_are_free_are_claimed(engine: Any, store: Store, facts: Facts) -> None:
    facts(tcp_ports=[22, 30006])
    assert claimed(engine, store, OPEN).changes == CHANGES


@pytest.mark.parametrize(
    ("has_infiniband", "sentence"),
    [
        (False, "session_infiniband: agent1 no longer has /dev/infiniband/uverbs*"),
        (True, "agent_allow_infiniband: agent1 no longer allows containers to use its InfiniBand"),
    ],
    ids=["no device", "not allowed"],
)
def test_missing_infiniband_is_refused(
    engine: Any, store: Store, facts: Facts, has_infiniband: bool, sentence: str
) -> None:
    infiniband_plan = dataclasses.replace(MADE, infiniband=True)
    facts(has_infiniband=has_infiniband, infiniband=False)
    assert refusal(engine, store, infiniband_plan) == sentence
    assert claimed(engine, store).changes == CHANGES


def test_infiniband_of_an_agent_that_allows_it_is_claimed(engine: Any, store: Store, facts: Facts) -> None:
    facts(has_infiniband=True, infiniband=True)
    assert claimed(engine, store, dataclasses.replace(MADE, infiniband=True)).changes == CHANGES


def test_refusal_lists_containers_by_their_slots(engine: Any, store: Store, facts: Facts) -> None:
    facts(capacity={"cpu": 8, "mem": 16 * GIB, "tpu": 1}, allocated={"tpu": 1}, devices=[device("a", free=False)])
    assert refusal(engine, store, plan_with_slots(tpu=1)) == (
        "agent1 no longer has room for 1 container of cpu 2, mem 1g and 1 container of cpu 2, mem 1g, tpu 1"
    )


def gpus(*models: str) -> list[dict[str, Any]]:
    return [{"slot": "cuda.device", "id": f"GPU-{at}", "model": model} for at, model in enumerate(models)]


def test_gpus_are_of_the_model_that_the_session_asks_for(engine: Any, store: Store, facts: Facts) -> None:
    facts(capacity={"cpu": 8, "mem": 16 * GIB, "cuda.device": 3}, devices=gpus("Tesla T4", "NVIDIA H100", "Tesla T4"))
    wanted = dataclasses.replace(plan_with_slots(**{"cuda.device": 1}), gpu=GpuRequest("H100"))
    claimed(engine, store, wanted)
    assert pinned(store)["sub1"].devices == {"cuda.device": ["GPU-1"]}


def test_without_a_gpu_of_that_model_the_claim_is_refused(engine: Any, store: Store, facts: Facts) -> None:
    facts(capacity={"cpu": 8, "mem": 16 * GIB, "cuda.device": 1}, devices=gpus("Tesla T4"))
    wanted = dataclasses.replace(plan_with_slots(**{"cuda.device": 1}), gpu=GpuRequest("H100"))
    assert refusal(engine, store, wanted).startswith("agent1 no longer has room for ")


TWO_GPUS = {"capacity": {"cpu": 8, "mem": 16 * GIB, "cuda.device": 2}, "devices": gpus("", "")}
USED = "GPU-0 is used by an unknown process: name it in agent_reserved_devices."


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
def test_a_gpu_that_others_use_is_not_taken_while_there_is_another(
    engine: Any, store: Store, facts: Facts, driver: NvidiaSmi, check_mode: bool
) -> None:
    facts(**TWO_GPUS)
    driver.says("echo 'GPU-0, [N/A]'")
    wanted = plan_with_slots(**{"cuda.device": 1})
    assert claimed(engine, store, wanted, check_mode=check_mode).warnings == (USED,)
    assert check_mode or pinned(store)["sub1"].devices == {"cuda.device": ["GPU-1"]}
    assert len(driver.calls) == 1


def test_a_gpu_that_others_use_is_taken_without_another_and_that_is_said(
    engine: Any, store: Store, facts: Facts, driver: NvidiaSmi
) -> None:
    facts(**TWO_GPUS)
    driver.says("echo 'GPU-0, [N/A]'")
    result = claimed(engine, store, plan_with_slots(**{"cuda.device": 2}))
    assert result.warnings == (USED, "train-llm has GPU-0 all the same: no other is free.")
    assert {*pinned(store)["sub1"].devices["cuda.device"]} == {"GPU-0", "GPU-1"}


@pytest.mark.usefixtures("facts")
def test_a_claim_without_gpus_does_not_ask_the_driver_and_warns_of_containers(
    engine: Any, store: Store, driver: NvidiaSmi
) -> None:
    engine.made = [{"Id": "a", "Names": ["/web"], "Labels": {}, "State": "running"}]
    (warning,) = claimed(engine, store, plan_with_slots(**{"cuda.device": 0})).warnings
    assert warning.startswith("container web: of no session, and not counted: ")
    assert driver.calls == []


def test_a_driver_that_fails_keeps_no_session_from_its_gpu(
    engine: Any, store: Store, facts: Facts, driver: NvidiaSmi
) -> None:
    facts(**TWO_GPUS)
    driver.says("exit 9")
    (warning,) = claimed(engine, store, plan_with_slots(**{"cuda.device": 1})).warnings
    assert warning.startswith("it is not known who uses its GPUs (nvidia-smi failed: ")
    assert pinned(store)["sub1"].devices == {"cuda.device": ["GPU-0"]}


def test_the_agent_is_not_locked_while_the_driver_is_asked(
    engine: Any, store: Store, facts: Facts, driver: NvidiaSmi
) -> None:
    facts(**TWO_GPUS)
    driver.says(f"flock --nonblock {store.root}/lock true || exit 9")
    assert claimed(engine, store, plan_with_slots(**{"cuda.device": 1})).warnings == ()


def test_a_reserved_gpu_that_a_session_still_has_is_not_warned_of(
    engine: Any, store: Store, facts: Facts, driver: NvidiaSmi
) -> None:
    facts(**TWO_GPUS)
    driver.says("echo 'GPU-0, [N/A]'")
    request = ClaimRequest(plan_with_slots(**{"cuda.device": 1}), "agent1", "nonce-1", 600)
    settings = SETTINGS._replace(reserved_devices=["GPU-0"])
    assert claim(engine, store, settings, request, check_mode=False).warnings == ()


@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize("state", [{}, {"expires_at": 9e12}], ids=["committed", "claimed"])
def test_a_session_that_has_its_gpus_is_not_warned_of_others(
    engine: Any, store: Store, driver: NvidiaSmi, state: dict[str, Any]
) -> None:
    wanted = plan_with_slots(**{"cuda.device": 1})
    store.save(held(wanted, **state))
    driver.says("echo 'GPU-0, [N/A]'")
    assert claimed(engine, store, wanted).warnings == ()


@pytest.mark.usefixtures("facts")
def test_session_name_in_use_is_refused(engine: Any, store: Store) -> None:
    store.save(held(another(name="train-llm"), nonce="theirs", expires_at=time.time() + 60))
    assert refusal(engine, store) == "session_name: 'train-llm' was taken on agent1 by another run"


@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize(
    "labelled",
    [{}, own_labels("main1", "lost"), own_labels("main1")],
    ids=["of others", "of a session that was lost", "with all labels of this one"],
)
def test_container_name_in_use_is_refused(engine: Any, store: Store, labelled: dict[str, str]) -> None:
    name = MADE.kernels[0].container
    engine.made = [{"Id": "a", "Names": [f"/{name}"], "Labels": labelled, "State": "exited"}]
    with pytest.raises(NameTakenError) as taken:
        claimed(engine, store)
    assert str(taken.value) == (
        f"container {name} already exists on agent1 and does not belong to this session, which needs that name: remove"
        f" it there (docker rm -f {name}), or choose another session_name"
    )
    assert (store.session(SESSION_ID), engine.calls) == (None, [])


@pytest.mark.usefixtures("facts")
def test_containers_of_an_expired_claim_of_the_session_are_removed(engine: Any, store: Store) -> None:
    store.save(held(MADE, expires_at=1.0))
    store.container_ids(SESSION_ID).record("sub1", "b")
    for container_id, hostname in (("a", "main1"), ("b", "sub1")):
        add(engine, hostname, Id=container_id)
    assert claimed(engine, store) == ClaimResult(CHANGES, KEYS)
    assert sorted(engine.calls) == ["remove a", "remove b"]


@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize("state", [{"expires_at": 9e12}, {"expires_at": None}], ids=["claimed", "committed"])
def test_what_a_killed_run_has_created_is_the_sessions_under_the_nonce_of_the_next_one(
    engine: Any, store: Store, state: dict[str, Any]
) -> None:
    store.save(held(MADE, **state))
    add(engine, "main1")
    add(engine, "sub1", Labels={**own_labels("sub1"), labels.NONCE: "another"})
    claimed(engine, store, nonce="nonce-2", never_completed=True)
    session = store.session(SESSION_ID)
    assert session is not None
    assert session.nonce == "nonce-2"
    assert store.container_ids(SESSION_ID).read() == {"main1": "id-main1"}
    assert [*own_containers(engine, store, session)] == ["main1"]


@pytest.mark.usefixtures("facts")
def test_the_name_of_a_network_in_use_is_refused(engine: Any, store: Store) -> None:
    one = plan({"agent1": 2})
    network = {"Id": "n", "Name": "backendai-train-llm", "Driver": "bridge", "Labels": {}, "IPAM": {}}
    engine.joined = [{**network, "Labels": {**own_labels("main1", "lost")}}]
    with pytest.raises(NameTakenError) as taken:
        claimed(engine, store, one)
    assert str(taken.value) == (
        "network backendai-train-llm already exists on agent1 and does not belong to this session, which needs that"
        " name: remove it there (docker network rm backendai-train-llm), or choose another session_name"
    )


@pytest.mark.usefixtures("facts")
def test_expired_claim_of_another_session_is_removed(engine: Any, store: Store) -> None:
    store.save(held(another(), nonce="theirs", expires_at=1.0))
    claimed(engine, store)
    assert [session.plan.id for session in store.sessions()] == [SESSION_ID]


@pytest.mark.usefixtures("facts")
def test_check_mode_keeps_expired_claims(engine: Any, store: Store) -> None:
    store.save(held(another(), expires_at=1.0))
    claimed(engine, store, check_mode=True)
    assert [session.plan.name for session in store.sessions()] == ["other"]


@pytest.mark.usefixtures("facts")
def test_stale_sessions_are_removed_first(engine: Any, store: Store) -> None:
    store.save(held(another(name="train-llm"), pinned={"main1": PinnedResources([0, 1])}))
    store.container_ids(OTHER_ID).record("main1", "id-main1")
    add(engine, "main1", Labels=own_labels("main1", OTHER_ID), Log=[(TIME, b"one\n")])
    changes = [
        Change("container backendai-train-llm-main1", "exited", None),
        Change("session train-llm", "held", None),
        *CHANGES,
    ]
    assert claimed(engine, store, clear=[OTHER_ID]) == ClaimResult(changes, KEYS)
    # Its processes were asked, and what they printed is kept.
    assert "SIGPWR id-main1" in engine.calls
    kept = find_kept(store, OTHER_ID)
    assert kept
    assert "one" in read_kept(store, kept, "", 9, ReplyLogs())["logs"]["main1"]["log"]
    assert [session.plan.id for session in store.sessions()] == [SESSION_ID]
    assert pinned(store) == {"main1": PinnedResources([0, 1]), "sub1": PinnedResources([2, 3])}


@pytest.mark.usefixtures("facts")
def test_stale_sessions_are_removed_for_a_committed_session_too(engine: Any, store: Store) -> None:
    for session in (held(MADE), held(another())):
        store.save(session)
    assert claimed(engine, store, clear=[OTHER_ID]).changes == [Change("session other", "held", None)]
    assert [session.plan.id for session in store.sessions()] == [SESSION_ID]


@pytest.mark.usefixtures("facts")
def test_check_mode_returns_but_keeps_stale_sessions(engine: Any, store: Store) -> None:
    store.save(held(another(name="train-llm"), pinned={"main1": PinnedResources([0, 1])}))
    assert claimed(engine, store, clear=[OTHER_ID], check_mode=True).changes == [
        Change("session train-llm", "held", None),
        *CHANGES,
    ]
    assert [session.plan.id for session in store.sessions()] == [OTHER_ID]


@pytest.mark.usefixtures("facts")
def test_invalid_id_removes_nothing(engine: Any, store: Store) -> None:
    store.save(held(another()))
    with pytest.raises(ValueError, match=r"^session_id: '' is not the id of a session$"):
        claimed(engine, store, clear=[""])
    assert [session.plan.id for session in store.sessions()] == [OTHER_ID]


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
def test_sessions_are_counted_unless_they_would_have_been_removed(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch, check_mode: bool
) -> None:
    monkeypatch.setattr(claiming, "ensure_keys", lambda folder, _kit: KEYS[folder.parent.name])
    queries: list[FactsQuery] = []

    def survey(*reading: Any) -> AgentFacts:
        queries.append(reading[3])
        return agent_facts("agent1")

    monkeypatch.setattr(claiming, "collect_facts", survey)
    claimed(engine, store, clear=[OTHER_ID], check_mode=check_mode)
    excluded = [OTHER_ID, SESSION_ID] if check_mode else [SESSION_ID]
    assert queries == [FactsQuery(excluded=excluded, counts_expired=not check_mode)]


@pytest.mark.usefixtures("facts")
def test_cores_of_active_sessions_are_avoided(engine: Any, store: Store) -> None:
    store.save(held(another(), pinned={"main1": PinnedResources([0, 2])}))
    claimed(engine, store)
    assert pinned(store) == {"main1": PinnedResources([1, 3]), "sub1": PinnedResources([4, 5])}


def test_cores_and_devices_are_on_one_numa_node(
    engine: Any, store: Store, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claiming.machine, "numa_nodes", lambda cpus: {cpu: cpu // 4 for cpu in cpus})
    facts(capacity={"cpu": 8, "mem": 16 * GIB, "tpu": 3}, devices=[device("a", 0, free=False), device("b", 1)])
    claimed(engine, store, plan_with_slots(tpu=1))
    assert pinned(store) == {"main1": PinnedResources([0, 1]), "sub1": PinnedResources([4, 5], {"tpu": ["b"]})}


def test_cores_are_shared_up_to_the_overcommit(engine: Any, store: Store, facts: Facts) -> None:
    facts(online_cpus=[0, 1, 2], capacity={"cpu": 6, "mem": 16 * GIB})
    store.save(held(another(), pinned={"main1": PinnedResources([0]), "sub1": PinnedResources([0])}))
    request = ClaimRequest(MADE, "agent1", "nonce-1", 600)
    claim(engine, store, SETTINGS._replace(cpu_overcommit=2), request, check_mode=False)
    assert pinned(store) == {"main1": PinnedResources([1, 2]), "sub1": PinnedResources([1, 2])}


def test_a_cordoned_agent_refuses_a_plan_that_was_made_before(engine: Any, store: Store, facts: Facts) -> None:
    facts(schedulable=False, cordon={"reason": "disk", "by": "carol", "since": 0.0})
    assert refusal(engine, store) == "agent1 takes no new sessions: cordoned by carol (disk)"
