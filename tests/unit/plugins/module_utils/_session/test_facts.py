"""The facts of one agent: capacity, allocations and sessions."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError
from requests.exceptions import ReadTimeout

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import DockerUnavailableError
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.policy import AllowRule, Firewall
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.state import FirewallState
from ansible_collections.backendai.cluster.plugins.module_utils._host import (
    health,
    home_folder,
    home_removal,
    path_look,
)
from ansible_collections.backendai.cluster.plugins.module_utils._host.accelerators import Accelerators
from ansible_collections.backendai.cluster.plugins.module_utils._host.cordon import replace_cordon
from ansible_collections.backendai.cluster.plugins.module_utils._host.health import write_health
from ansible_collections.backendai.cluster.plugins.module_utils._host.look_records import LookRecords, Seen
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import NotProvisionedError, Store
from ansible_collections.backendai.cluster.plugins.module_utils._host.withdrawn import withdraw
from ansible_collections.backendai.cluster.plugins.module_utils._model.cordon import Cordon
from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import Device, PinnedResources
from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.health import Health, HealthProblem
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import ContainerState
from ansible_collections.backendai.cluster.plugins.module_utils._model.image_paths import judge_image
from ansible_collections.backendai.cluster.plugins.module_utils._model.network import Underlay
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import MAX_APPS, PublishedPort
from ansible_collections.backendai.cluster.plugins.module_utils._model.use import Load
from ansible_collections.backendai.cluster.plugins.module_utils._module import CAPACITY_OPTIONS
from ansible_collections.backendai.cluster.plugins.module_utils._session import facts as surveying
from ansible_collections.backendai.cluster.plugins.module_utils._session import mount_sources, service_state
from ansible_collections.backendai.cluster.plugins.module_utils._session.agent_needs import NEEDS, Lack, Lacking
from ansible_collections.backendai.cluster.plugins.module_utils._session.container_states import container_states
from ansible_collections.backendai.cluster.plugins.module_utils._session.facts import (
    REPORTING,
    SWARM_CLOSED,
    AgentSettings,
    FactsQuery,
    active_sessions,
    collect_facts,
    cpu_load,
)
from ansible_collections.backendai.cluster.plugins.module_utils._wireguard import device
from tests.unit.builders import GIB, IMAGE, NOW, SESSION_ID, held, image_data, own_labels, plan
from tests.unit.fake_docker import FakeDocker
from tests.unit.image_tree import image_with, link
from tests.unit.silent_mount import MS_NODEV, MS_NOSUID, mount_memory, own_mounts

MADE = plan({"agent1": 2, "agent2": 2}, resources={"cpu": 2, "mem": GIB})
NODE = {"LocalNodeState": "active", "NodeID": "n", "ControlAvailable": True}
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
SETTINGS = AgentSettings("default", True, (), {"cpu": 0, "mem": "512m"}, 1, 0, "", False)


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake a host with four cores, 16 GiB and no devices that uses one network and one VXLAN."""
    monkeypatch.setattr(surveying, "find_accelerators", lambda _slots, **_folders: Accelerators([], []))
    monkeypatch.setattr(surveying, "infiniband_nodes", list)
    monkeypatch.setattr(surveying, "due_restarts", list)
    monkeypatch.setattr(surveying.machine, "online_cpus", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(surveying.machine, "memory_total", lambda: 16 * GIB)
    monkeypatch.setattr(surveying.network, "networks_in_use", lambda _links: ["192.0.2.0/24"])
    monkeypatch.setattr(surveying.network, "vnis_in_use", lambda _links: [7])
    monkeypatch.setattr(surveying.network, "read_links", list)
    monkeypatch.setattr(surveying.network, "find_underlay", lambda *_where: Underlay("192.0.2.1", "eth0", 1500))
    monkeypatch.setattr(surveying.network, "own_addresses", lambda *_where: ["192.0.2.1"])
    monkeypatch.setattr(surveying.network, "udp_ports", lambda _links: {53: "another program"})
    monkeypatch.setattr(surveying.network, "tcp_ports", lambda: {22, 30000})
    monkeypatch.setattr(service_state, "find_lacks", lambda _store: [])


def read(engine: Any, store: Store, questions: FactsQuery | None = None, **settings: Any) -> dict[str, Any]:
    return collect_facts(engine, store, SETTINGS._replace(**settings), questions or FactsQuery()).to_dict()


def container(hostname: str, state: str = "running", **changes: str) -> dict[str, Any]:
    bears = {
        **own_labels(hostname),
        labels.IMAGE_DIGEST: "sha256:1",
        **changes,
    }
    limits = {"CpusetCpus": "0-1", "Memory": GIB}
    name = f"backendai-train-llm-{hostname}"
    return {"Id": hostname, "Names": [f"/{name}"], "Labels": bears, "State": state, "HostConfig": limits}


def test_agent_takes_no_sessions_while_it_lacks_what_it_does_not_mend_itself(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lack = Lack("the engine's own rules are missing", "rules of the engine", "missing", "present")
    setting = Lack("net.ipv4.ip_forward is 0 instead of 1", "kernel setting net.ipv4.ip_forward", "0", "1")
    lacks = [
        Lacking(NEEDS[0], setting),
        *(Lacking(need, lack) for need in NEEDS if need.harmless),
        *(Lacking(need, Lack("the bridge is missing", "bridge", None, "present")) for need in NEEDS if need.blocks),
        Lacking(NEEDS[-1], lack),
    ]
    monkeypatch.setattr(service_state, "find_lacks", lambda _store: lacks[:-2])
    facts = read(engine, store)
    assert (facts["schedulable"], facts["obstacles"]) == (True, [])
    assert facts["warnings"] == [
        "net.ipv4.ip_forward is 0 instead of 1: its timer backendai-reconcile.timer mends that."
    ]
    monkeypatch.setattr(service_state, "find_lacks", lambda _store: lacks)
    facts = read(engine, store)
    bridge, rules = facts["obstacles"]
    assert facts["schedulable"] is False
    restart = "restart the engine (systemctl restart docker)"
    consequence = "so it receives no new sessions"
    assert bridge.startswith(f"the bridge is missing, {consequence}: {restart}, or end its sessions and run ")
    assert rules == f"the engine's own rules are missing, {consequence}: {restart}."


def test_agent_takes_no_sessions_while_it_is_not_known_whether_it_lacks_something(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lack = Lack("forwarding cannot be looked at (timed out)", "forwarding", "unreadable: timed out", "readable", True)
    monkeypatch.setattr(service_state, "find_lacks", lambda _store: [Lacking(NEEDS[0], lack)])
    facts = read(engine, store)
    assert facts["obstacles"] == [
        "forwarding cannot be looked at (timed out), so it receives no new sessions until that works."
    ]
    assert facts["warnings"] == []


def test_an_empty_agent(engine: Any, store: Store) -> None:
    facts = read(engine, store)
    assert {key: facts[key] for key in ("engine", "kit", "online_cpus", "allocated", "containers", "sessions")} == {
        "engine": "20.10.24",
        "kit": "0123456789ab",
        "online_cpus": [0, 1, 2, 3],
        "allocated": {},
        "containers": 0,
        "sessions": [],
    }
    assert (facts["networks"], facts["vnis"]) == (["192.0.2.0/24"], [7])
    assert (facts["addresses"], facts["udp_ports"]) == (["192.0.2.1"], {"53": "another program"})


def test_disk_of_the_engine_is_read_with_the_sizes_of_images(engine: Any, store: Store, tmp_path: Path) -> None:
    engine.info = lambda: {**FakeDocker().info(), "DockerRootDir": str(tmp_path)}
    engine.images[IMAGE]["Size"] = 50
    disk = read(engine, store, FactsQuery(images=[IMAGE, "other:1"]), disk_reserve="2g")["image_disk"]
    assert disk.pop("free") > 0
    assert disk == {"folder": str(tmp_path), "reserve": 2 * GIB, "sizes": {IMAGE: 50}}
    engine.info = lambda: {**FakeDocker().info(), "DockerRootDir": "/nowhere"}
    assert read(engine, store)["image_disk"] is None


def test_reserve_that_is_no_size_is_refused(engine: Any, store: Store) -> None:
    with pytest.raises(ValueError, match=r"^agent_disk_reserve: 'much' must be bytes, such as 1g"):
        read(engine, store, disk_reserve="much")


def test_missing_encrypted_underlay_is_a_warning(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying.network, "own_addresses", lambda underlay, _links: [underlay.interface])
    monkeypatch.setattr(device, "read_device", lambda: None)
    facts = read(engine, store, underlay_encryption="wireguard")
    assert (facts["underlay"], facts["addresses"]) == (None, ["eth0"])
    assert facts["warnings"] == [
        "agent_underlay_encryption: there is no key; run backendai.cluster.provision_agents on this host."
    ]
    assert (facts["tcp_ports"], facts["allow_host_network"]) == ([22, 30000], False)


def test_ports_of_host_network_sessions_are_in_use(engine: Any, store: Store) -> None:
    shared = plan({"agent1": 2, "agent2": 1}, network_driver="host")
    store.save(held(shared))
    facts = read(engine, store, allow_host_network=True)
    assert facts["tcp_ports"] == sorted([22, 30000, *shared.host_ports("agent1")])
    assert (facts["allow_host_network"], facts["networks"], facts["vnis"]) == (True, ["192.0.2.0/24"], [7])


def test_published_ports_are_in_use_on_the_agent_of_main1(engine: Any, store: Store) -> None:
    ways = tuple(PublishedPort("app", "tcp", 80, "192.0.2.1", port) for port in (30009, 30000))
    local = dataclasses.replace(MADE, published=ways)
    remote = dataclasses.replace(plan({"agent2": 1, "agent1": 1}), id=OTHER_ID, published=(ways[0],))
    store.save(held(remote, "agent1"))
    assert read(engine, store)["tcp_ports"] == [22, 30000]
    store.save(held(local))
    assert read(engine, store)["tcp_ports"] == [22, 30000, 30009]
    assert read(engine, store, FactsQuery(excluded=[SESSION_ID]))["tcp_ports"] == [22, 30000]


@pytest.mark.parametrize(
    ("swarm", "ports"),
    [
        ({**NODE, "Cluster": {"DataPathPort": 7789}}, {"7789": "Docker Swarm"}),
        ({**NODE, "Cluster": {"DataPathPort": 0}}, {"4789": "Docker Swarm"}),
        ({**NODE, "Cluster": None}, {"4789": "Docker Swarm"}),
        ({**NODE, "ControlAvailable": False}, {}),
        ({"LocalNodeState": "pending", "ControlAvailable": False, "Cluster": None}, {}),
    ],
    ids=["a manager knows its port", "the usual port", "no quorum", "a worker", "a node that joins"],
)
@pytest.mark.parametrize("kernel", [{}, {4789: "another program"}], ids=["no overlay in use", "an overlay in use"])
def test_a_tunnel_cannot_have_the_port_of_a_swarm_that_the_host_manages_or_one_that_the_kernel_has_a_socket_for(
    engine: Any,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    swarm: dict[str, Any],
    ports: dict[str, str],
    kernel: dict[int, str],
) -> None:
    monkeypatch.setattr(surveying.network, "udp_ports", lambda _links: kernel)
    engine.swarm = swarm
    assert read(engine, store)["udp_ports"] == {**{str(port): user for port, user in kernel.items()}, **ports}


def test_facts_round_trip_through_plain_data(engine: Any, store: Store) -> None:
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
    ],
    ids=["default", "nothing reserved", "reserved", "all reserved", "overcommit"],
)
def test_capacity_excludes_reserved_slots(
    engine: Any, store: Store, settings: dict[str, Any], capacity: dict[str, int]
) -> None:
    assert read(engine, store, **settings)["capacity"] == capacity


def has(monkeypatch: pytest.MonkeyPatch, *devices: Device, warnings: tuple[str, ...] = ()) -> None:
    """Fake these accelerators of the host."""
    accelerators = Accelerators(list(devices), list(warnings))
    monkeypatch.setattr(surveying, "find_accelerators", lambda _slots, **_folders: accelerators)


def test_the_domains_of_an_agent_are_those_of_the_inventory(engine: Any, store: Store) -> None:
    facts = read(engine, store, topology=["leaf1", "rack2"], topology_levels=["leaf", "rack"])
    assert (facts["topology"], facts["topology_levels"]) == (["leaf1", "rack2"], ["leaf", "rack"])


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"topology": ["leaf 1"]}, "agent_topology: 'leaf 1' must have 1 to 63 of"),
        ({"topology_levels": ["-"]}, "agent_topology_levels: '-' must have 1 to 63 of"),
        ({"topology": ["a"] * 9}, "agent_topology: 9 levels are more than 8"),
        (
            {"topology_levels": ["leaf", "leaf"]},
            "agent_topology_levels: leaf, leaf must be different words, not numbers",
        ),
        ({"topology_levels": ["2"]}, "agent_topology_levels: 2 must be different words, not numbers"),
        (
            {"topology": ["rack1"], "topology_levels": ["leaf", "rack"]},
            (
                "agent_topology: rack1 must be one domain for each of agent_topology_levels (leaf, rack), from the"
                " outside in"
            ),
        ),
    ],
)
def test_domains_that_are_not_valid_are_refused(
    engine: Any, store: Store, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}"):
        read(engine, store, **settings)


def test_device_capacity_excludes_reserved_devices(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, Device("cuda.device", "GPU-a"), Device("cuda.device", "GPU-b", 1), Device("tpu", "/dev/accel0"))
    facts = read(engine, store, reserved={"cuda.device": 1})
    assert facts["capacity"] == {"cpu": 4, "mem": 16 * GIB, "cuda.device": 1, "tpu": 1}
    unknown = {"model": "", "memory": 0, "gpu": ""}
    assert facts["devices"] == [
        {"slot": "cuda.device", "id": "GPU-a", "numa": None, "free": True, **unknown},
        {"slot": "cuda.device", "id": "GPU-b", "numa": 1, "free": True, **unknown},
        {"slot": "tpu", "id": "/dev/accel0", "numa": None, "free": True, **unknown},
    ]


def test_named_devices_are_not_offered(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    instances = [Device("cuda.mig-1g.10gb", f"MIG-{number}", gpu="GPU-c") for number in (1, 2)]
    has(monkeypatch, *(Device("cuda.device", f"GPU-{name}") for name in "ab"), *instances, Device("tpu", "/dev/accel0"))
    facts = read(engine, store, reserved={"cuda.device": 1}, reserved_devices=["GPU-c", "/dev/accel0"])
    assert [device["id"] for device in facts["devices"]] == ["GPU-a", "GPU-b"]
    assert facts["capacity"] == {"cpu": 4, "mem": 16 * GIB, "cuda.device": 1}
    assert facts["warnings"] == []


def test_a_named_device_stays_with_the_session_that_has_it(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch, *(Device("cuda.device", f"GPU-{name}") for name in "abcd"))
    pinned = {"main1": PinnedResources([0], {"cuda.device": ["GPU-a", "GPU-b"]})}
    store.save(held(MADE, pinned={**pinned, "sub1": PinnedResources([0], {"cuda.device": ["GPU-d"]})}))
    facts = read(engine, store, reserved_devices=["GPU-a", "GPU-b", "GPU-c"])
    assert {device["id"]: device["free"] for device in facts["devices"]} == dict.fromkeys(
        ["GPU-a", "GPU-b", "GPU-d"], False
    )
    assert facts["capacity"]["cuda.device"] == 3
    assert facts["warnings"] == [
        "agent_reserved_devices: GPU-a, GPU-b stay with the session train-llm until that ends."
    ]


def test_a_named_device_is_not_counted_for_the_container_of_no_session_that_has_it(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch, Device("tpu", "/dev/accel0"), Device("tpu", "/dev/accel1"))
    nodes = [{"PathOnHost": f"/dev/accel{number}", "PathInContainer": "/dev/x"} for number in (0, 1)]
    engine.made = [{**container("saved"), "HostConfig": {"NanoCpus": 1_500_000_000, "Devices": nodes}}]
    facts = read(engine, store, reserved_devices=["/dev/accel0"])
    assert (facts["capacity"]["tpu"], facts["allocated"]) == (1, {"cpu": 2, "tpu": 1})
    assert read(engine, store)["allocated"] == {"cpu": 2, "tpu": 2}


def test_a_named_device_that_is_not_there_is_warned_of_and_another_word_refused(engine: Any, store: Store) -> None:
    (warning,) = read(engine, store, reserved_devices=["GPU-a"])["warnings"]
    assert warning.startswith("agent_reserved_devices: this agent offers no device GPU-a: ")
    with pytest.raises(ValueError, match=r"^agent_reserved_devices: '0' must be the UUID of "):
        read(engine, store, reserved_devices=["0"])


def test_declared_devices_come_from_the_settings(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        surveying,
        "find_accelerators",
        lambda slots, **_engine: Accelerators([Device(device["name"], "x") for device in slots], []),
    )
    slots = [{"name": "tpu", "devices": ["/dev/accel0"]}]
    assert [device["slot"] for device in read(engine, store, slots=slots)["devices"]] == ["tpu"]


def test_gpus_are_read_as_the_engine_gives_them(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.cdi_folders = ["/etc/cdi"]
    engine.cgroup_driver, engine.server_version = "systemd", "26.1.5+dfsg1"
    monkeypatch.setattr(surveying, "find_accelerators", lambda _slots, **given: Accelerators([], [str(given)]))
    expected = {"cdi_folders": ["/etc/cdi"], "newest_cdi": (0, 7), "systemd_rules": True}
    assert read(engine, store)["warnings"] == [str(expected)]


def test_restarts_that_are_due_are_among_the_warnings(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surveying, "due_restarts", lambda: ["a reboot is due."])
    assert read(engine, store)["warnings"] == ["a reboot is due."]


@pytest.mark.parametrize("allowed", [False, True], ids=["not allowed", "allowed"])
@pytest.mark.parametrize("nodes", [[], ["/dev/infiniband/uverbs0"]], ids=["none", "one"])
def test_infiniband_needs_nodes_and_the_permission(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch, nodes: list[str], allowed: bool
) -> None:
    monkeypatch.setattr(surveying, "infiniband_nodes", lambda: nodes)
    facts = AgentFacts.from_dict("agent1", read(engine, store, allow_infiniband=allowed))
    assert (facts.has_infiniband, facts.infiniband) == (bool(nodes), bool(nodes) and allowed)


def test_infiniband_is_not_allowed_by_default(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "infiniband_nodes", lambda: ["/dev/infiniband/uverbs0"])
    facts = read(engine, store, **{name: option["default"] for name, option in CAPACITY_OPTIONS.items()})
    assert (facts["has_infiniband"], facts["infiniband"]) == (True, False)


def test_accelerator_warnings_are_returned(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, warnings=("nvidia-smi fails",))
    assert read(engine, store)["warnings"] == ["nvidia-smi fails"]


def test_devices_of_active_sessions_are_not_free(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("mine", "claimed", "given-up", "lost", "free")
    has(monkeypatch, *(Device("tpu", name) for name in names))
    for number, (name, until) in enumerate([("mine", None), ("claimed", 9e12), ("given-up", 1.0), ("lost", None)]):
        of = dataclasses.replace(MADE, id=f"{number:08x}{OTHER_ID[8:]}")
        store.save(held(of, expires_at=until, pinned={"main1": PinnedResources([0], {"tpu": [name]})}))
    facts = read(engine, store, FactsQuery(excluded=[f"00000003{OTHER_ID[8:]}"]))
    assert {device["id"] for device in facts["devices"] if device["free"]} == {"given-up", "lost", "free"}


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
def test_invalid_amount_in_a_setting_is_named(
    engine: Any, store: Store, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        read(engine, store, **settings)


@pytest.mark.parametrize(
    ("expires_at", "taken", "containers"),
    [(None, {"cpu": 4, "mem": 2 * GIB}, 2), (9e12, {"cpu": 4, "mem": 2 * GIB}, 2), (1.0, {}, 0)],
    ids=["committed", "being created", "given up"],
)
def test_slots_count_as_allocated_until_a_claim_expires(
    engine: Any, store: Store, expires_at: float | None, taken: dict[str, int], containers: int
) -> None:
    store.save(held(MADE, expires_at=expires_at))
    facts = read(engine, store)
    assert (facts["allocated"], facts["containers"]) == (taken, containers)
    assert MADE.network is not None
    assert (MADE.network.subnet in facts["networks"]) == (MADE.network.vni in facts["vnis"]) == bool(containers)
    assert facts["sessions"][0]["expired"] is (not containers)


def test_excluded_sessions_are_not_counted(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    facts = read(engine, store, FactsQuery(excluded=[SESSION_ID]))
    assert (facts["allocated"], facts["containers"], facts["networks"], facts["vnis"]) == ({}, 0, ["192.0.2.0/24"], [7])


def test_expired_and_excluded_sessions_are_not_active() -> None:
    other = dataclasses.replace(MADE, id=OTHER_ID)
    mine, theirs, given_up = held(MADE), held(other, expires_at=9e12), held(other, expires_at=1.0)
    assert active_sessions([mine, theirs, given_up]) == [mine, theirs]
    assert active_sessions([mine, theirs, given_up], [SESSION_ID]) == [theirs]


def given(path: str) -> list[dict[str, str]]:
    return [{"PathOnHost": f"/gone{path}", "PathInContainer": path, "CgroupPermissions": "rwm"}]


def test_a_device_of_a_session_whose_folder_was_moved_away_is_given_to_nobody(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch, Device("tpu", "/dev/accel0"), Device("tpu", "/dev/accel1"))
    store.save(held(MADE, pinned={"main1": PinnedResources([0], {"tpu": ["/dev/accel0"]})}))
    engine.made = [container("main1")]
    engine.made[0]["HostConfig"]["Devices"] = given("/dev/accel0")
    before = read(engine, store)
    store.folder(SESSION_ID).rename(store.root / "elsewhere")
    after = read(engine, store)
    for facts in (before, after):
        assert [device["free"] for device in facts["devices"]] == [False, True]
    assert (after["sessions"], after["containers"]) == ([], 1)
    assert after["allocated"] == {"cpu": 2, "mem": GIB, "tpu": 1}
    (warning,) = after["warnings"]
    assert warning == (
        "container backendai-train-llm-main1: of no session here, although labels name one, as those of an image do"
        " that was made of a container. Nothing touches what is of no session, and what runs of it counts: cpu 2, mem"
        " 1g, tpu 1 (/dev/accel0): remove what is not needed with docker rm -f backendai-train-llm-main1."
    )


@pytest.mark.parametrize(
    ("state", "counts"), [("running", 1), ("paused", 1), ("restarting", 1), ("exited", 0), ("created", 0)]
)
def test_what_only_has_the_labels_of_a_session_counts_by_its_limits_while_it_runs(
    engine: Any, store: Store, state: str, counts: int
) -> None:
    store.save(held(MADE))
    own = read(engine, store)["allocated"]
    saved = {**container("main1", state), "Id": "saved", "Names": ["/saved"], "HostConfig": {"NanoCpus": 1_500_000_000}}
    engine.made = [container("main1"), saved]
    facts = read(engine, store)
    assert facts["allocated"] == {**own, "cpu": own["cpu"] + 2 * counts}
    assert (facts["containers"], len(facts["sessions"][0]["states"])) == (2 + counts, 1)
    (warning,) = facts["warnings"]
    assert warning.startswith("container saved: of no session here")
    assert ("cpu 2" in warning) is bool(counts)


def test_a_device_that_a_session_and_something_else_have_counts_once(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch, Device("tpu", "/dev/accel0"), Device("tpu", "/dev/accel1"))
    store.save(held(MADE, pinned={"main1": PinnedResources([0], {"tpu": ["/dev/accel0"]})}))
    saved = {"Id": "saved", "Names": ["/saved"], "HostConfig": {"Devices": given("/dev/accel0")}}
    engine.made = [container("main1"), {**container("main1"), **saved}]
    facts = read(engine, store)
    assert (facts["allocated"].get("tpu", 0), [device["free"] for device in facts["devices"]]) == (0, [False, True])


def test_containers_that_a_damaged_session_has_recorded_count_whether_they_run_or_not(
    engine: Any, store: Store
) -> None:
    store.save(held(MADE))
    store.container_ids(SESSION_ID).record("main1", "main1")
    (store.folder(SESSION_ID) / "session.json").write_text("{")
    engine.made = [container("main1", "exited"), container("sub1", "exited")]
    facts = read(engine, store)
    assert (facts["allocated"], facts["containers"]) == ({"cpu": 2, "mem": GIB}, 1)


def test_the_first_of_many_containers_of_no_session_are_named(engine: Any, store: Store) -> None:
    engine.made = [{**container("main1", "exited"), "Id": name, "Names": [f"/{name}"]} for name in "gfedcba"]
    (warning,) = read(engine, store)["warnings"]
    assert warning.startswith("containers a, b, c, d, e, 2 more: of no session here")
    assert warning.endswith("and none of it counts: remove what is not needed with docker rm -f a b c d e.")


def test_a_network_of_a_session_that_is_not_held_is_named(engine: Any, store: Store) -> None:
    engine.joined = [
        {"Id": name, "Name": name, "Driver": driver, "Labels": own_labels("main1", of), "IPAM": {}}
        for name, driver, of in (("a", "bridge", SESSION_ID), ("b", "bridge", OTHER_ID), ("c", "overlay", OTHER_ID))
    ]
    store.save(held(MADE))
    (warning,) = read(engine, store)["warnings"]
    assert warning == (
        "network b: of no session here, although labels name one. Nothing touches it: remove what is not needed with"
        " docker network rm b."
    )


def test_a_container_of_a_held_session_counts_once(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    engine.made = [container("main1")]
    assert read(engine, store)["containers"] == 2


def test_a_command_has_begun_unless_its_start_is_being_rolled_back(engine: Any, store: Store) -> None:
    session = held(dataclasses.replace(MADE, command="train"))
    store.save(session)
    assert [part["begun"] for part in read(engine, store)["sessions"]] == [False]
    store.kernel_folder(SESSION_ID, "main1").mkdir()
    store.start_marker(SESSION_ID).touch()
    assert [part["begun"] for part in read(engine, store)["sessions"]] == [True]
    withdraw(session.nonce)
    assert [part["begun"] for part in read(engine, store)["sessions"]] == [False]


def test_sessions_include_their_containers_and_keys_that_were_asked(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    ended = {"ExitCode": 3, "FinishedAt": "1970-01-01T00:01:00.25Z"}
    engine.made = [container("main1"), {**container("sub1", "exited"), **ended}]
    part = {
        "id": SESSION_ID,
        "name": "train-llm",
        "created_at": NOW,
        "nonce": "nonce-1",
        "plan_digest": MADE.digest,
        "batch": False,
        "committed": True,
        "expired": False,
        "states": [
            {
                "state": {"status": "running", "image_digest": "sha256:1", "exit_code": None},
                "hostnames": ["main1"],
            },
            {"state": {"status": "exited", "image_digest": "sha256:1", "exit_code": 3}, "hostnames": ["sub1"]},
        ],
        "lived": None,
        "idle": None,
        "begun": False,
        "waits": False,
        "cordon": None,
        "public_keys": {},
        "load": None,
    }
    keys = {
        "main1": {"user": "ssh-ed25519 USER-main1", "host": "ssh-ed25519 HOST-main1"},
        "sub1": {"user": "ssh-ed25519 USER-sub1", "host": "ssh-ed25519 HOST-sub1"},
    }
    assert read(engine, store)["sessions"] == [part]
    assert read(engine, store, FactsQuery(keys_of=[OTHER_ID]))["sessions"] == [part]
    assert read(engine, store, FactsQuery(keys_of=[SESSION_ID]))["sessions"] == [{**part, "public_keys": keys}]


def test_what_sessions_use_is_measured_if_it_is_asked_for(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(held(MADE))
    monkeypatch.setattr(surveying, "measure_loads", lambda *_agent: {SESSION_ID: Load(1.5, (97,))})
    assert read(engine, store)["sessions"][0]["load"] is None
    assert read(engine, store, FactsQuery(loads=True))["sessions"][0]["load"] == {"cpu": 1.5, "gpus": [97]}


def test_queried_images_and_folders_are_checked(
    engine: Any, store: Store, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mount_sources, "look", path_look.look)
    monkeypatch.setattr(path_look, "LOCKS", tmp_path_factory.mktemp("looks"))
    shares = tmp_path_factory.mktemp("shares")
    (shares / "file").touch()
    (shares / "data").mkdir()
    os.chown(shares / "data", 0, 2000)
    paths = [str(shares / name) for name in ("data", "file", "absent")]
    facts = read(engine, store, FactsQuery([IMAGE, "absent:1"], paths))
    assert facts["images"] == {IMAGE: image_data(1), "absent:1": None}
    missing = {"problem": "is not a folder", "explanation": "the source must exist there"}
    assert facts["unusable_paths"] == dict.fromkeys(paths[1:], missing)
    assert facts["path_groups"] == {paths[0]: 2000}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"Id": "sha256:9", "Config": None}, "describes 'odd:1' in a form that is not known; build the image again"),
        (APIError("500", explanation="layer does not exist"), "cannot read 'odd:1': layer does not exist"),
        (ReadTimeout("no answer\nin time"), "cannot read 'odd:1': no answer in time"),
        (ValueError("no JSON"), "cannot read 'odd:1': no JSON"),
    ],
    ids=["form", "error of the engine", "hangs", "answer"],
)
def test_an_image_that_cannot_be_read_is_named_and_the_agent_is_read(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch, answer: Any, problem: str
) -> None:
    inspect = engine.inspect_image

    def inspect_odd(name: str) -> Any:
        if name == "odd:1" and isinstance(answer, Exception):
            raise answer
        return answer if name == "odd:1" else inspect(name)

    monkeypatch.setattr(engine, "inspect_image", inspect_odd)
    facts = read(engine, store, FactsQuery(["odd:1", IMAGE, "absent:1"]))
    assert facts["images"] == {IMAGE: image_data(1), "absent:1": None}
    assert facts["unusable_images"] == {"odd:1": f"session_image: the engine {problem}"}


def test_an_image_that_was_refused_is_named_from_then_on_and_the_agent_is_read(engine: Any, store: Store) -> None:
    engine.images["odd:1"] = {"Id": "sha256:2", "Config": {}}
    image = image_with({"/opt/backendai": link("/proc")})
    judge_image(image.look, (), ())
    LookRecords(store.images_folder).save(Seen("sha256:2", {path: image.look(path) for path in [*image.asked]}), None)
    facts = read(engine, store, FactsQuery(["odd:1", IMAGE]))
    assert [*facts["images"]] == [IMAGE]
    problem = "leads /opt/backendai to /proc, which must not be at, in or above /proc: remove that link from the image"
    assert facts["unusable_images"] == {"odd:1": f"session_image: 'odd:1' {problem}"}


def test_mount_roots_are_absolute_paths(engine: Any, store: Store) -> None:
    with pytest.raises(ValueError, match=r"^agent_mount_roots: 'data' must be an absolute path$"):
        read(engine, store, mount_roots=["data"])


def test_an_agent_without_a_kit_has_no_facts(engine: Any, tmp_path: Path) -> None:
    with pytest.raises(NotProvisionedError, match=r"run backendai\.cluster\.provision_agents on this host\.$"):
        read(engine, Store(str(tmp_path / "absent")))


def test_core_load_is_the_number_of_pinned_containers() -> None:
    both = {"main1": PinnedResources([0, 1]), "sub1": PinnedResources([1])}
    assert cpu_load([held(MADE, pinned=both), held(MADE, pinned={"sub2": PinnedResources([1, 3])})]) == {
        0: 1,
        1: 3,
        3: 1,
    }


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("running", None),
        ("created", None),
        ("restarting", None),
        ("exited", 3),
        ("dead", 3),
    ],
)
def test_only_containers_that_have_ended_have_an_exit_code(
    engine: Any, store: Store, state: str, expected: int | None
) -> None:
    engine.made = [{**container("main1", state), "ExitCode": 3, "FinishedAt": "1970-01-01T00:01:00Z"}]
    states = container_states(engine, store, held(MADE), {"main1": engine.made[0]})
    assert states == {"main1": ContainerState(state, "sha256:1", expected)}


def test_a_damaged_session_is_left_out_and_the_agent_gets_no_new_ones(engine: Any, store: Store) -> None:
    store.save(held(MADE))
    store.save(held(dataclasses.replace(MADE, id=OTHER_ID)))
    path = store.folder(OTHER_ID) / "session.json"
    path.write_text("{")
    facts = read(engine, store)
    assert [session["id"] for session in facts["sessions"]] == [SESSION_ID]
    assert facts["damaged_sessions"] == [OTHER_ID]
    assert facts["schedulable"] is False
    (warning,) = [text for text in facts["obstacles"] if "damaged" in text]
    assert warning.startswith(f"it receives no new sessions, because {path} is damaged (")
    assert path.read_text() == "{"


def test_a_damaged_firewall_is_a_warning(engine: Any, store: Store) -> None:
    store.firewall_file.write_text("{")
    facts = read(engine, store)
    assert any(text.startswith(f"{store.firewall_file} is damaged (") for text in facts["warnings"])
    assert facts["schedulable"] is True


@pytest.mark.parametrize(("end", "told"), [(None, False), (NOW, True)])
def test_a_cordoned_agent_is_not_schedulable_and_tells_its_sessions_when_they_end(
    engine: Any, store: Store, end: float | None, told: bool
) -> None:
    store.save(held(MADE))
    replace_cordon(store, Cordon("disk", "carol", NOW, end), check_mode=False)
    facts = AgentFacts.from_dict("agent1", read(engine, store))
    assert (facts.schedulable, facts.cordon) == (False, Cordon("disk", "carol", NOW, end))
    assert facts.sessions[0].cordon == (facts.cordon if told else None)


def test_an_engine_that_is_newer_than_any_known_is_a_warning(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "version", lambda: {"Version": "30.0.0", "ApiVersion": "1.99"})
    facts = read(engine, store)
    assert (facts["engine"], facts["schedulable"]) == ("30.0.0", True)
    assert [warning.partition(":")[0] for warning in facts["warnings"]] == [
        "the engine is newer than this version of backendai.cluster"
    ]


def test_an_agent_whose_engine_adds_its_rules_by_nftables_receives_no_new_sessions(engine: Any, store: Store) -> None:
    engine.info = lambda: {**FakeDocker().info(), "FirewallBackend": {"Driver": "nftables"}}
    facts = read(engine, store)
    (obstacle,) = facts["obstacles"]
    assert facts["schedulable"] is False
    assert obstacle == (
        "the engine adds its rules by nftables, with which sessions and their isolation have not been tried, so it"
        " receives no new sessions: remove firewall-backend from /etc/docker/daemon.json or its command line, and"
        " restart the engine (systemctl restart docker)."
    )


@pytest.mark.parametrize(("mode", "warned"), [("report", True), ("enforce", False)])
def test_a_host_in_report_mode_is_a_warning(engine: Any, store: Store, mode: str, warned: bool) -> None:
    FirewallState(store).save(Firewall(("192.0.2.7/32",), mode=mode), None)
    facts = read(engine, store)
    assert (facts["schedulable"], REPORTING in facts["warnings"]) == (True, warned)


GOSSIP = (AllowRule("tcp", ("2377", "7000-8000"), ("192.0.2.0/24",)), AllowRule("udp", ("7946",), ("192.0.2.0/24",)))


@pytest.mark.parametrize(
    ("swarm", "allow", "warned"),
    [
        ({**NODE, "Nodes": 2}, (), True),
        ({**NODE, "ControlAvailable": False, "Nodes": 0}, GOSSIP[:1], True),
        ({**NODE, "Nodes": 2}, GOSSIP, False),
        ({**NODE, "Nodes": 2}, (AllowRule("any", (), ("192.0.2.0/24",)),), False),
        ({**NODE, "Nodes": 1}, (), False),
        ({"LocalNodeState": "inactive"}, (), False),
    ],
    ids=["a manager", "a worker, UDP is closed", "opened", "all is open", "a swarm of one node", "none"],
)
@pytest.mark.parametrize("mode", ["report", "enforce"])
def test_a_firewall_that_closes_a_swarm_is_a_warning(
    engine: Any, store: Store, swarm: dict[str, Any], allow: tuple[AllowRule, ...], warned: bool, mode: str
) -> None:
    engine.swarm = swarm
    assert SWARM_CLOSED not in read(engine, store)["warnings"]
    FirewallState(store).save(Firewall(("192.0.2.7/32",), allow=allow, mode=mode), None)
    assert (SWARM_CLOSED in read(engine, store)["warnings"]) is warned


def test_an_agent_with_a_damaged_cordon_is_not_schedulable(engine: Any, store: Store) -> None:
    store.cordon_file.write_text("{")
    facts = read(engine, store)
    assert (facts["schedulable"], facts["cordon"]) == (False, None)
    assert facts["obstacles"][0].startswith("it receives no new sessions, because")


def test_the_labels_of_the_inventory_are_facts(engine: Any, store: Store) -> None:
    facts = AgentFacts.from_dict("agent1", read(engine, store, labels=["ssd", "rack=12"]))
    assert facts.labels == {"ssd", "rack=12"}


@pytest.mark.parametrize("label", ["", "two words", "-x", "a" * 64, "ä"])
def test_a_text_that_is_no_label_is_an_error(engine: Any, store: Store, label: str) -> None:
    with pytest.raises(ValueError, match=r"^agent_labels: .* must have 1 to 63 of A-Z"):
        read(engine, store, labels=[label])


def test_a_sick_host_takes_no_new_sessions(engine: Any, store: Store) -> None:
    write_health(store, Health(1.0, (HealthProblem("disk", "full"),), ("the health check x does not run.",)))
    facts = read(engine, store)
    assert facts["schedulable"] is False
    assert facts["obstacles"] == ["it receives no new sessions, because a health check failed: disk: full."]
    assert facts["warnings"] == ["the health check x does not run."]


def test_an_agent_whose_health_cannot_be_stored_takes_no_new_sessions(engine: Any, store: Store) -> None:
    write_health(store, Health(1.0))
    health.VERDICT.write_bytes(b"")
    facts = read(engine, store)
    assert (facts["schedulable"], facts["obstacles"]) == (False, [service_state.LOST_HEALTH])


def test_a_sick_device_is_assigned_to_no_container_and_stays_where_it_is(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = [Device("tpu", name) for name in ("/dev/a", "/dev/b", "/dev/c")]
    monkeypatch.setattr(surveying, "find_accelerators", lambda _slots, **_folders: Accelerators(devices, []))
    one = plan({"agent1": 1}, resources={"cpu": 1, "mem": GIB, "tpu": 1})
    store.save(held(one, pinned={"main1": PinnedResources([0], {"tpu": ["/dev/a"]})}))
    write_health(store, Health(1.0, (HealthProblem("tpu", "ECC", ("/dev/a", "/dev/b")),)))
    facts = AgentFacts.from_dict("agent1", read(engine, store))
    assert (facts.schedulable, facts.capacity["tpu"], facts.free["tpu"]) == (True, 2, 1)
    assert [(device.id, device.free) for device in facts.devices] == [("/dev/a", False), ("/dev/c", True)]
    assert facts.warnings == ("/dev/b is assigned to no container: a health check failed: tpu: ECC.",)


def limits_of_an_agent(engine: Any, store: Store, made: SessionPlan, sessions: int = 64) -> int:
    """Let an agent hold sessions of that plan with all ports that they may publish; return its survey's size."""
    for number in range(sessions):
        session_id = f"{number:08x}{SESSION_ID[8:]}"
        first = 30000 + number * (MAX_APPS + 1)
        ways = tuple(PublishedPort(f"app{at}", "tcp", 9000 + at, "192.0.2.1", first + at) for at in range(MAX_APPS + 1))
        store.save(held(dataclasses.replace(made, id=session_id, name=f"session-{number}", published=ways)))
        engine.made += [
            container(kernel.hostname, **{labels.SESSION_ID: session_id}) for kernel in made.kernels_on("agent1")
        ]
    facts = read(engine, store)
    assert (len(facts["sessions"]), len(facts["tcp_ports"])) == (sessions, sessions * (MAX_APPS + 1) + 1)
    return len(json.dumps({"agent": facts, "error": None}))


def test_a_survey_is_small_whatever_commands_the_sessions_have(engine: Any, store: Store) -> None:
    made = plan({"agent1": 2}, command="x" * (256 << 10), resources={"cpu": 1, "mem": GIB})
    assert limits_of_an_agent(engine, store, made) < 1 << 20
    assert sum(path.stat().st_size for path in store.root.glob("sessions/*/session.json")) > 16 << 20


@pytest.mark.parametrize("here", [16, 1024])
def test_a_survey_is_small_however_many_containers_the_sessions_have(engine: Any, store: Store, here: int) -> None:
    counts = {"agent1": here, **({"agent2": 1024 - here} if here < 1024 else {})}
    made = plan(counts, resources={"cpu": 1, "mem": GIB})
    # An eighth of them, because that many containers take their time.
    assert 8 * limits_of_an_agent(engine, store, made, sessions=8) < 1 << 20


def test_agent_without_space_takes_no_new_sessions_until_homes_of_ended_ones_are_removed(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_state, "free_bytes", lambda _homes: 1 << 28)
    monkeypatch.setattr(home_removal, "free_bytes", lambda _homes: 1 << 28)
    store.homes.make(SESSION_ID, "main1", 12345, 23456)
    assert read(engine, store)["schedulable"] is True
    store.homes.retire(SESSION_ID)
    facts = read(engine, store)
    assert facts["schedulable"] is False
    (obstacle,) = facts["obstacles"]
    assert obstacle == (
        "it receives no new sessions until the homes of ended sessions have been removed: 268.4 MB are free in"
        f" {store.homes.root}, and agent_disk_reserve is 1.1 GB."
    )
    assert read(engine, store, disk_reserve="100m")["schedulable"] is True
    assert home_removal.remove_retired(store.homes, 0) == []
    assert read(engine, store)["schedulable"] is True


def test_agent_whose_homes_are_not_mounted_as_they_should_takes_no_new_sessions(
    engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_state, "is_protected", home_folder.is_protected)
    sentence = (
        f"the homes of sessions, {store.homes.root}, are not mounted nosuid,nodev, so it receives no new sessions: run"
        " systemctl restart backendai-homes-mount.service on it, and see systemctl status backendai-homes-mount.service"
        " if that fails."
    )
    root, found = store.homes.root, []
    with own_mounts():
        for flags in (0, MS_NOSUID, MS_NODEV, MS_NOSUID | MS_NODEV):
            (mount_memory(root, flags) / "removed").mkdir()
            found.append((*read(engine, store)["obstacles"],))
    assert found == [(sentence,), (sentence,), (sentence,), ()]


def test_agent_without_homes_is_to_be_provisioned(engine: Any, store: Store) -> None:
    store.homes_link.unlink()
    with pytest.raises(NotProvisionedError, match=r"homes is missing: run backendai\.cluster\.provision_agents"):
        read(engine, store)


def test_a_rootless_engine_is_refused_by_a_sentence(
    store: Store, engine: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordinary = engine.info()
    monkeypatch.setattr(engine, "info", lambda: {**ordinary, "SecurityOptions": ["name=seccomp,profile=builtin"]})
    assert read(engine, store)["capacity"]
    monkeypatch.setattr(engine, "info", lambda: {**ordinary, "SecurityOptions": ["name=seccomp", "name=rootless"]})
    with pytest.raises(DockerUnavailableError, match=r"docker\.sock is rootless, and cannot .*: set agent_docker_host"):
        read(engine, store)
