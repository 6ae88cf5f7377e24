"""The containers of a session on one agent."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError

from ansible_collections.backendai.cluster.plugins.module_utils._docker import containers, labels
from ansible_collections.backendai.cluster.plugins.module_utils._docker.container import Bind, Container, LogConfig
from ansible_collections.backendai.cluster.plugins.module_utils._docker.containers import (
    plan_containers,
    remove_containers,
)
from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import find_image
from ansible_collections.backendai.cluster.plugins.module_utils._host.container_ids import ContainerIds
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.environment import INTERFACE_VARIABLES
from tests.unit.fake_docker import FakeDocker, environment_of

MAIN = Container(
    name="backendai-train-llm-main1",
    hostname="main1",
    image="lab/python:1",
    argv=("python3", "-i"),
    explicit_environment={"TOKEN": "hunter2", "BACKENDAI_CLUSTER_SIZE": "1"},
    image_environment={"PATH": "/bin"},
    kit="/var/lib/backendai/kit/0123456789ab",
    uid=1000,
    gid=100,
    binds=(Bind("/var/lib/backendai/sessions/1/main1", "/run/backendai"),),
    cpus=(0, 2),
    devices=(),
    memory=1 << 30,
    shm_size=None,
    default_network="backendai-default",
    network="backendai-train-llm",
    address="10.128.3.2",
    mac="02:ba:0a:80:03:02",
    labels={labels.OWNER: labels.OWNER_VALUE, labels.SESSION_ID: "1", labels.HOSTNAME: "main1"},
)
SUB = dataclasses.replace(
    MAIN, name="backendai-train-llm-sub1", hostname="sub1", labels={**MAIN.labels, labels.HOSTNAME: "sub1"}
)
LOG = LogConfig("json-file", 20 << 20, 5)
RDMA_CM, UVERBS = "/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"
WITH_INFINIBAND = dataclasses.replace(MAIN, devices=("/dev/fuse",), infiniband=(RDMA_CM, UVERBS))
SUBJECT = "container backendai-train-llm-main1"
PHRASE = "running, image lab/python:1, address 10.128.3.2, cores 0,2, memory 1073741824"


@pytest.fixture
def engine() -> Any:
    """Return an empty engine."""
    return FakeDocker()


class Ids:
    """Takes the ids of containers, and what the engine had been asked until then."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, str, str]] = []

    def record(self, hostname: str, container_id: str) -> None:
        self.recorded.append(("record", hostname, container_id))

    def forget(self, hostname: str) -> None:
        self.recorded.append(("forget", hostname, ""))


IDS: Any = Ids()


def made(engine: Any) -> dict[str, Any]:
    return {entry["Labels"].get(labels.HOSTNAME): entry for entry in engine.made}


def apply(engine: Any, *desired: Container) -> list[Change]:
    """Create the desired containers and return the changes."""
    steps = plan_containers(made(engine), desired)
    containers.apply_containers(engine, IDS, steps)
    return [step.change for step in steps]


def test_missing_container_is_created_connected_and_started(engine: Any) -> None:
    assert apply(engine, MAIN) == [Change(SUBJECT, None, PHRASE)]
    assert engine.calls == [
        "create backendai-train-llm-main1",
        "connect id-backendai-train-llm-main1 to backendai-default",
        "start id-backendai-train-llm-main1",
    ]


def test_running_container_is_unchanged(engine: Any) -> None:
    apply(engine, MAIN)
    engine.calls.clear()
    assert apply(engine, MAIN) == []
    assert engine.calls == []


@pytest.mark.parametrize("state", ["exited", "created", "dead"])
def test_stopped_container_is_started_and_not_recreated(engine: Any, state: str) -> None:
    apply(engine, MAIN)
    engine.calls.clear()
    engine.made[0]["State"] = state
    assert apply(engine, MAIN) == [Change(SUBJECT, state, PHRASE)]
    assert engine.calls == ["start id-backendai-train-llm-main1"]


@pytest.mark.parametrize("later", [(), (2000,), (2000, 2002)])
def test_stopped_container_is_recreated_if_its_user_is_in_other_groups(engine: Any, later: tuple[int, ...]) -> None:
    before, after = (dataclasses.replace(MAIN, groups=groups) for groups in ((2000, 2001), later))
    apply(engine, before)
    assert apply(engine, after) == [], "what runs is left alone"
    engine.made[0]["State"] = "exited"
    assert apply(engine, dataclasses.replace(MAIN, groups=(2001, 2000))) == [Change(SUBJECT, "exited", PHRASE)]
    engine.made[0]["State"] = "exited"
    assert apply(engine, after) == [Change(SUBJECT, "exited, with other groups of the user", PHRASE)]
    assert engine.asked[-1]["HostConfig"]["GroupAdd"] == list(map(str, later))


@pytest.mark.parametrize("state", ["running", "exited"])
def test_container_with_other_properties_is_recreated(engine: Any, state: str) -> None:
    apply(engine, MAIN)
    engine.calls.clear()
    engine.made[0]["State"] = state
    changed = dataclasses.replace(MAIN, cpus=(0, 1, 2))
    assert apply(engine, changed) == [
        Change(SUBJECT, f"{state}, with other properties", PHRASE.replace("0,2", "0,1,2")),
    ]
    assert engine.calls[:2] == ["remove id-backendai-train-llm-main1", "create backendai-train-llm-main1"]


@pytest.mark.parametrize(
    "drift",
    [
        {"image": "lab/busybox:1"},
        {"explicit_environment": {"TOKEN": "hunter3"}},
        {"binds": ()},
        {"uid": 1001},
        {"gid": 1000},
        {"cpus": (0, 1)},
        {"devices": ("/dev/fuse",)},
        {"memory": 2 << 30},
        {"shm_size": 1 << 26},
        {"network": None},
        {"default_network": "bridge"},
        {"address": "10.128.3.3"},
        {"mac": "02:ba:0a:80:03:03"},
        {"published": ((22, "192.0.2.1", 30000),)},
        {"hostname": "sub1"},
        {"name": "x"},
    ],
    ids=lambda drift: next(iter(drift)),
)
def test_container_digest_covers_properties_that_cannot_change_later(drift: dict[str, Any]) -> None:
    assert dataclasses.replace(MAIN, **drift).digest() != MAIN.digest()


@pytest.mark.parametrize(
    "later",
    [
        {"kit": "/var/lib/backendai/kit/fedcba987654"},
        {"image_environment": {"PATH": "/new"}},
        {"labels": {}},
        {"argv": ("sleep", "1d")},
        {"ulimits": {"nofile": 1024}},
        {"cdi_gpus": frozenset({"GPU-aaaa"})},
        {"gpu_nodes": ("/dev/nvidia0",)},
        {"pids": 4096},
        {"omp_threads": 2},
        {"groups": (2000,)},
        {"image_binds": (Bind("/kit/etc/empty", "/etc/hosts.deny"),)},
        {"leads": {"/home/work": "/var/home/work"}},
        {"nodes": {"/dev/fuse": "/nodes/dev-fuse"}},
        {"recursive": True},
        {"log": LOG},
    ],
    ids=lambda drift: next(iter(drift)),
)
def test_newer_kit_image_or_limits_do_not_replace_a_running_container(
    later: dict[str, Any],
) -> None:
    assert dataclasses.replace(MAIN, **later).digest() == MAIN.digest()


def test_container_has_its_resources_and_no_restart_policy(engine: Any) -> None:
    apply(engine, dataclasses.replace(MAIN, ulimits={"nofile": 1048576, "memlock": -1}))
    (request,) = engine.asked
    host = request["HostConfig"]
    assert host == {
        "NetworkMode": "backendai-train-llm",
        # With userns-remap of the engine, too.
        "UsernsMode": "host",
        "Mounts": [
            mounted("/var/lib/backendai/kit/0123456789ab", "/opt/backendai"),
            mounted("/var/lib/backendai/sessions/1/main1", "/run/backendai"),
        ],
        "Init": False,
        "GroupAdd": [],
        "CpusetCpus": "0,2",
        "Devices": [],
        "DeviceRequests": [],
        "CapAdd": ["NET_RAW", "SYS_NICE"],
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "Ulimits": [
            {"Name": "nofile", "Soft": 1048576, "Hard": 1048576},
            {"Name": "memlock", "Soft": -1, "Hard": -1},
        ],
        "Memory": 1 << 30,
        "MemorySwap": 1 << 30,
        "ShmSize": 1 << 29,
        "RestartPolicy": {"Name": "no"},
        "PortBindings": {},
    }
    assert request["ExposedPorts"] == {}
    assert (request["Image"], request["Hostname"], request["User"]) == ("lab/python:1", "main1", "1000:100")
    assert (request["Entrypoint"], request["Cmd"]) == (["/opt/backendai/bin/entrypoint"], ["python3", "-i"])
    assert request["MacAddress"] == "02:ba:0a:80:03:02"
    assert request["NetworkingConfig"] == {
        "EndpointsConfig": {"backendai-train-llm": {"IPAMConfig": {"IPv4Address": "10.128.3.2"}}}
    }
    assert environment_of(request) == {"PATH": "/bin", "TOKEN": "hunter2", "BACKENDAI_CLUSTER_SIZE": "1"}
    nothing = {labels.DERIVED: "{}", labels.GROUPS: "[]", labels.INFINIBAND: "[]"}
    assert request["Labels"] == {**MAIN.labels, **nothing, labels.DIGEST: MAIN.digest()}, "none is that of its image"


@pytest.mark.parametrize(
    ("server", "api", "bounding"),
    [
        ("20.10.5+dfsg1", "1.41", None),
        ("20.10.13", "1.41", None),
        ("20.10.14", "1.41", ["NET_RAW", "SYS_NICE"]),
        ("dev", "1.42", ["NET_RAW", "SYS_NICE"]),
    ],
)
def test_an_engine_that_makes_capabilities_inheritable_leaves_none_to_a_container(
    engine: Any, server: str, api: str, bounding: list[str] | None
) -> None:
    engine.server_version, engine.api_version = server, api
    apply(engine, MAIN)
    host = engine.asked[0]["HostConfig"]
    assert (host.get("CapAdd"), host["CapDrop"]) == (bounding, ["ALL"])


def test_container_has_the_shared_memory_and_threads_that_are_asked_for(engine: Any) -> None:
    distributed = {**MAIN.explicit_environment, "BACKENDAI_CLUSTER_SIZE": "2", "BACKENDAI_CLUSTER_HOSTS": "main1,sub1"}
    distributed["BACKENDAI_CLUSTER_LOCAL_RANK"] = "0"
    apply(engine, dataclasses.replace(MAIN, shm_size=1 << 26, omp_threads=2, explicit_environment=distributed))
    (request,) = engine.asked
    assert request["HostConfig"]["ShmSize"] == 1 << 26
    assert environment_of(request)["OMP_NUM_THREADS"] == "2"


DISTRIBUTED = {
    "BACKENDAI_CLUSTER_SIZE": "2",
    "BACKENDAI_CLUSTER_HOSTS": "main1,sub1",
    "BACKENDAI_CLUSTER_LOCAL_RANK": "0",
}


def test_what_was_derived_is_derived_anew_in_a_container_of_an_image_that_was_made_of_one(engine: Any) -> None:
    main = dataclasses.replace(MAIN, interface_names=INTERFACE_VARIABLES)
    first = dataclasses.replace(main, omp_threads=2, explicit_environment={**DISTRIBUTED, "MASTER_PORT": "1234"})
    apply(engine, first)
    (made_first,) = engine.asked
    saved = environment_of(made_first)
    environment = [f"{name}={value}" for name, value in saved.items()]
    # An image that was built from it sets one again, and has a variable that was taken away.
    config = {"Env": [*environment, "GONE"], "Labels": made_first["Labels"]}
    config["Env"][config["Env"].index(f"GLOO_SOCKET_IFNAME={saved['GLOO_SOCKET_IFNAME']}")] = "GLOO_SOCKET_IFNAME=ib0"
    engine.images["saved"] = {"Id": "sha256:2", "Config": config}
    image = find_image(engine, "saved")
    assert image is not None
    assert {"MASTER_ADDR", "TF_CONFIG", "OMP_NUM_THREADS", "NCCL_SOCKET_IFNAME"} <= image.derived
    assert image.environment == {"PATH": "/bin", "GLOO_SOCKET_IFNAME": "ib0", **DISTRIBUTED, "MASTER_PORT": "1234"}
    again = dataclasses.replace(
        main,
        omp_threads=4,
        image_environment=image.environment,
        stale=image.derived,
        explicit_environment={**DISTRIBUTED, "BACKENDAI_CLUSTER_LOCAL_RANK": "1"},
    )
    engine.made.clear()
    apply(engine, again)
    second = environment_of(engine.asked[-1])
    assert (second["OMP_NUM_THREADS"], second["GLOO_SOCKET_IFNAME"], second["MASTER_PORT"]) == ("4", "ib0", "1234")
    assert json.loads(second["TF_CONFIG"] or "")["task"]["index"] == 1
    single = dataclasses.replace(again, explicit_environment={"BACKENDAI_CLUSTER_SIZE": "1"})
    engine.made.clear()
    apply(engine, single)
    asked = engine.asked[-1]
    # The engine would add them from the image otherwise.
    assert {name: environment_of(asked)[name] for name in image.derived} == dict.fromkeys(image.derived)
    assert asked["Labels"][labels.DERIVED] == "{}"


@pytest.mark.parametrize("label", [None, "", "no JSON", "[]", '{"PATH": 1}', '{"PATH": "0123456789abcdef"}'])
def test_a_label_that_does_not_fit_takes_no_variable_of_an_image_away(engine: Any, label: str | None) -> None:
    engine.images["odd"] = {"Id": "sha256:2", "Config": {"Env": ["PATH=/bin"], "Labels": {labels.DERIVED: label}}}
    image = find_image(engine, "odd")
    assert image is not None
    assert (image.environment, image.derived) == ({"PATH": "/bin"}, frozenset())


@pytest.mark.parametrize(
    ("config", "argv", "folder"),
    [
        (
            {"Entrypoint": ["/opt/backendai/bin/entrypoint"], "Cmd": ["/run", "-x"], "WorkingDir": "/"},
            ("/run", "-x"),
            "/app",
        ),
        ({"Entrypoint": ["/opt/backendai/bin/entrypoint"], "Cmd": None, "WorkingDir": "/new"}, (), "/new"),
        (
            {"Entrypoint": None, "Cmd": ["/opt/backendai/bin/entrypoint", "/opt/backendai/bin/entrypoint", "/run"]},
            ("/run",),
            "/app",
        ),
        ({"Entrypoint": ["/mine"], "Cmd": ["a"], "WorkingDir": "/"}, ("/mine", "a"), "/app"),
    ],
    ids=["saved", "with another folder", "saved twice", "with an entrypoint of its own"],
)
def test_our_entrypoint_is_not_run_again_by_an_image_that_was_made_of_a_container(
    engine: Any, config: dict[str, Any], argv: tuple[str, ...], folder: str
) -> None:
    engine.images["saved"] = {"Id": "sha256:2", "Config": {**config, "Labels": {labels.FOLDER: "/app"}}}
    image = find_image(engine, "saved")
    assert image is not None
    assert (image.argv, image.folder) == (argv, folder)


def test_the_id_of_a_container_is_recorded_before_it_starts_and_forgotten_after_it_is_gone(
    engine: Any, tmp_path: Path
) -> None:
    ids = ContainerIds(tmp_path / "containers")
    seen: list[tuple[str, dict[str, str]]] = []
    for name in ("create_container_from_config", "start", "remove_container"):
        call = getattr(engine, name)

        def noted(*given: Any, _call: Any = call, _name: str = name, **more: Any) -> Any:
            seen.append((_name, ids.read()))
            return _call(*given, **more)

        setattr(engine, name, noted)
    containers.apply_containers(engine, ids, plan_containers({}, [MAIN]))
    recorded = {"main1": "id-backendai-train-llm-main1"}
    assert seen == [("create_container_from_config", {}), ("start", recorded)]
    seen.clear()
    other = dataclasses.replace(MAIN, memory=1 << 31)
    containers.apply_containers(engine, ids, plan_containers(made(engine), [other]))
    assert seen == [("remove_container", recorded), ("create_container_from_config", {}), ("start", recorded)]


def test_container_has_its_limits(engine: Any) -> None:
    apply(engine, dataclasses.replace(MAIN, pids=4608, log=LOG))
    host = engine.asked[0]["HostConfig"]
    assert host["PidsLimit"] == 4608
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "20971520", "max-file": "5"}}


@pytest.mark.parametrize("driver", ["json-file", "local"])
def test_a_log_of_one_file_is_not_compressed_whatever_is_usual_for_the_engine(engine: Any, driver: str) -> None:
    apply(engine, dataclasses.replace(MAIN, log=LogConfig(driver, 1 << 20, 1)))
    expected = {"max-size": "1048576", "max-file": "1", "compress": "false"}
    assert engine.asked[0]["HostConfig"]["LogConfig"] == {"Type": driver, "Config": expected}


def test_nothing_in_a_container_can_get_privileges_unless_that_is_wanted(engine: Any) -> None:
    apply(engine, MAIN)
    apply(engine, dataclasses.replace(MAIN, no_new_privileges=False))
    closed, open_ = (request["HostConfig"] for request in engine.asked)
    assert (closed["CapDrop"], closed["CapAdd"]) == (["ALL"], ["NET_RAW", "SYS_NICE"])
    assert closed["SecurityOpt"] == ["no-new-privileges"]
    assert open_.keys().isdisjoint({"CapDrop", "CapAdd", "SecurityOpt"})
    assert dataclasses.replace(MAIN, no_new_privileges=False).digest() != MAIN.digest()


def test_only_the_stop_signal_of_containers_ends_them(engine: Any) -> None:
    apply(engine, MAIN)
    assert engine.asked[0]["StopSignal"] == "SIGPWR"


def test_a_target_that_is_a_link_of_the_image_is_mounted_where_that_leads(engine: Any) -> None:
    home = Bind("/homes/1/main1/home", "/home/work", read_only=False)
    apply(engine, dataclasses.replace(MAIN, image_binds=(home,), leads={"/home/work": "/var/home/work"}))
    assert engine.asked[0]["HostConfig"]["Mounts"][-1] == mounted(home.source, "/var/home/work", read_only=False)


@pytest.mark.parametrize("recursive", [True, False])
def test_only_folders_of_users_are_read_only_with_all_below_and_only_where_the_engine_can(
    engine: Any, recursive: bool
) -> None:
    binds = (*MAIN.binds, Bind("/mnt/a", "/a"), Bind("/mnt/b", "/b", read_only=False))
    sources = {"/mnt/a": "/srv/a", "/mnt/b": "/srv/b"}
    apply(engine, dataclasses.replace(MAIN, binds=binds, sources=sources, recursive=recursive))
    _kit, own, read_only, writable = engine.asked[0]["HostConfig"]["Mounts"]
    assert own == mounted(MAIN.binds[0].source, MAIN.binds[0].target)
    assert writable == mounted("/srv/b", "/b", read_only=False)
    expected = mounted("/srv/a", "/a")
    options = {"Propagation": "rprivate", "ReadOnlyForceRecursive": True}
    assert read_only == {**expected, **({"BindOptions": options} if recursive else {})}


def test_container_with_infiniband_has_its_nodes_and_no_raw_sockets(engine: Any) -> None:
    (change,) = apply(engine, dataclasses.replace(WITH_INFINIBAND, no_new_privileges=False))
    assert change.after == f"{PHRASE}, device /dev/fuse, device {RDMA_CM}, device {UVERBS}"
    (request,) = engine.asked
    host = request["HostConfig"]
    assert host["Devices"] == [node("/dev/fuse"), node(RDMA_CM), node(UVERBS)]
    assert (host.get("CapAdd"), host["CapDrop"]) == (None, ["NET_RAW"])
    assert json.loads(request["Labels"][labels.INFINIBAND]) == [RDMA_CM, UVERBS]


def test_whether_a_container_has_infiniband_is_part_of_its_digest() -> None:
    assert WITH_INFINIBAND.digest() != dataclasses.replace(WITH_INFINIBAND, infiniband=None).digest()


def test_device_nodes_are_made_like_the_agents_own(engine: Any) -> None:
    apply(engine, dataclasses.replace(MAIN, devices=("/dev/fuse",), nodes={"/dev/fuse": "/nodes/dev-fuse"}))
    assert engine.asked[0]["HostConfig"]["Devices"] == [{**node("/dev/fuse"), "PathOnHost": "/nodes/dev-fuse"}]


@pytest.mark.parametrize("later", [(), (RDMA_CM,), (RDMA_CM, UVERBS, f"{UVERBS}1")], ids=["none", "fewer", "more"])
def test_changed_infiniband_nodes_do_not_replace_a_running_container(engine: Any, later: tuple[str, ...]) -> None:
    apply(engine, WITH_INFINIBAND)
    engine.calls.clear()
    assert apply(engine, dataclasses.replace(WITH_INFINIBAND, infiniband=later)) == []
    assert engine.calls == []


@pytest.mark.parametrize("state", ["exited", "created"])
def test_stopped_container_is_recreated_if_its_infiniband_nodes_are_missing(engine: Any, state: str) -> None:
    apply(engine, WITH_INFINIBAND)
    engine.calls.clear()
    engine.made[0]["State"] = state
    (change,) = apply(engine, dataclasses.replace(WITH_INFINIBAND, infiniband=("/dev/infiniband/uverbs1",)))
    assert change.before == f"{state}, without {RDMA_CM}, {UVERBS}"
    assert engine.calls[:2] == ["remove id-backendai-train-llm-main1", "create backendai-train-llm-main1"]
    assert json.loads(engine.made[0]["Labels"][labels.INFINIBAND]) == ["/dev/infiniband/uverbs1"]


@pytest.mark.parametrize("label", [True, False], ids=["current", "older version"])
def test_stopped_container_is_only_started_if_its_infiniband_nodes_exist(engine: Any, label: bool) -> None:
    apply(engine, WITH_INFINIBAND)
    engine.calls.clear()
    engine.made[0]["State"] = "exited"
    if not label:
        del engine.made[0]["Labels"][labels.INFINIBAND]
    (change,) = apply(engine, dataclasses.replace(WITH_INFINIBAND, infiniband=(RDMA_CM, UVERBS, f"{UVERBS}1")))
    assert change.before == "exited"
    assert engine.calls == ["start id-backendai-train-llm-main1"]


def test_published_ports_are_bound_to_one_address_of_the_agent(engine: Any) -> None:
    ways = ((22, "192.0.2.1", 30001), (8888, "2001:db8::1", 30000))
    apply(engine, dataclasses.replace(MAIN, published=ways))
    (request,) = engine.asked
    assert request["ExposedPorts"] == {"22/tcp": {}, "8888/tcp": {}}
    assert request["HostConfig"]["PortBindings"] == {
        "22/tcp": [{"HostIp": "192.0.2.1", "HostPort": "30001"}],
        "8888/tcp": [{"HostIp": "2001:db8::1", "HostPort": "30000"}],
    }


def mounted(source: str, target: str, *, read_only: bool = True) -> dict[str, Any]:
    """Return a bind mount in the format of the engine's API."""
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}


def node(path: str) -> dict[str, str]:
    """Return a device node in the format of the engine's API."""
    return {"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"}


def test_container_has_its_device_nodes_once_and_its_gpus_by_uuid(engine: Any) -> None:
    devices = ("/dev/kfd,/dev/dri/renderD128", "/dev/kfd,/dev/dri/renderD129", "GPU-aaaa", "GPU-bbbb", "/dev/fuse")
    (change,) = apply(engine, dataclasses.replace(MAIN, devices=devices))
    assert change.after == PHRASE + "".join(f", device {device}" for device in devices)
    host = engine.asked[0]["HostConfig"]
    assert host["Devices"] == [
        node(path) for path in ("/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD129", "/dev/fuse")
    ]
    assert host["DeviceRequests"] == [
        {
            "Driver": "nvidia",
            "Count": 0,
            "DeviceIDs": ["GPU-aaaa", "GPU-bbbb"],
            "Capabilities": [["gpu"]],
            "Options": {},
        }
    ]


@pytest.mark.parametrize(
    ("cdi_gpus", "request_of"),
    [
        ({"GPU-aaaa", "GPU-bbbb", "GPU-cccc"}, ("cdi", ["nvidia.com/gpu=GPU-aaaa", "nvidia.com/gpu=GPU-bbbb"], [])),
        ({"GPU-aaaa"}, ("nvidia", ["GPU-aaaa", "GPU-bbbb"], [["gpu"]])),
    ],
    ids=["all named", "one named"],
)
def test_gpus_are_requested_by_cdi_if_all_of_them_have_a_cdi_name(
    engine: Any, cdi_gpus: set[str], request_of: tuple[str, list[str], list[list[str]]]
) -> None:
    apply(engine, dataclasses.replace(MAIN, devices=("GPU-aaaa", "GPU-bbbb"), cdi_gpus=frozenset(cdi_gpus)))
    (request,) = engine.asked[0]["HostConfig"]["DeviceRequests"]
    assert (request["Driver"], request["DeviceIDs"], request["Capabilities"]) == request_of
    # GPUs requested by CDI must not be requested from NVIDIA's runtime too.
    visible_devices = environment_of(engine.asked[0])["NVIDIA_VISIBLE_DEVICES"]
    assert visible_devices == ("void" if request_of[0] == "cdi" else "GPU-aaaa,GPU-bbbb")


@pytest.mark.parametrize("named", [True, False], ids=["CDI", "hook"])
def test_device_nodes_of_gpus_are_requested_where_the_hook_gives_the_gpus(engine: Any, named: bool) -> None:
    """The engine does not know what the hook adds, and would take it away."""
    nodes = ("/dev/nvidia1", "/dev/nvidiactl")
    names = frozenset({"GPU-aaaa"} if named else ())
    apply(engine, dataclasses.replace(MAIN, devices=("GPU-aaaa",), cdi_gpus=names, gpu_nodes=nodes))
    assert engine.asked[0]["HostConfig"]["Devices"] == ([] if named else [node(path) for path in nodes])


def test_container_without_gpus_requests_none_with_cdi(engine: Any) -> None:
    apply(engine, dataclasses.replace(MAIN, devices=("/dev/fuse",), cdi_gpus=frozenset({"GPU-aaaa"})))
    assert engine.asked[0]["HostConfig"]["DeviceRequests"] == []
    assert "NVIDIA_VISIBLE_DEVICES" not in environment_of(engine.asked[0])


@pytest.mark.parametrize("info", [{}, {"CDISpecDirs": None}, {"CDISpecDirs": []}], ids=["20.10", "null", "off"])
def test_engine_without_cdi_has_no_cdi_folders(info: dict[str, Any]) -> None:
    assert containers.cdi_folders(info) == []


@pytest.mark.parametrize(("driver", "rules"), [("systemd", True), ("cgroupfs", False), ("none", False)])
def test_systemd_applies_device_rules_with_its_cgroup_driver(engine: Any, driver: str, rules: bool) -> None:
    """With either version of control groups."""
    engine.cgroup_driver = driver
    assert containers.has_systemd_rules(engine.info()) is rules


def test_engine_has_a_default_log_driver(engine: Any) -> None:
    engine.log_driver = "journald"
    assert containers.log_driver(engine.info()) == "journald"


def test_engine_with_cdi_returns_its_cdi_folders(engine: Any) -> None:
    engine.cdi_folders = ["/etc/cdi", "/var/run/cdi"]
    assert containers.cdi_folders(engine.info()) == ["/etc/cdi", "/var/run/cdi"]


@pytest.mark.parametrize(
    ("engine", "newest"),
    [
        ("25.0.0", (0, 6)),
        ("26.0.2", (0, 6)),
        ("26.1.5+dfsg1", (0, 7)),
        ("27.3.1", (0, 7)),
        ("27.5.1", (0, 8)),
        ("28.0.4", (0, 8)),
        ("28.5.2", (1, 0)),
        ("29.1.3", (1, 0)),
        ("29.4.0", ()),
        ("", ()),
        (None, ()),
        ("dev", ()),
    ],
)
def test_what_version_of_a_cdi_specification_an_engine_reads_is_that_of_the_library_in_it(
    engine: str | None, newest: tuple[int, ...]
) -> None:
    assert containers.newest_cdi({"ServerVersion": engine}) == newest


@pytest.mark.parametrize(
    ("options", "has"),
    [(None, False), ([], False), (["name=seccomp,profile=builtin"], False), (["name=cgroupns", "name=selinux"], True)],
)
def test_an_engine_that_labels_containers_says_so(options: list[str] | None, has: bool) -> None:
    assert containers.has_selinux({"SecurityOptions": options}) is has


@pytest.mark.parametrize(
    ("image_environment", "explicit", "devices", "visible_devices"),
    [
        ({}, {}, (), None),
        ({}, {}, ("/dev/fuse",), None),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, {}, (), "void"),
        ({"CUDA_VERSION": "12.4"}, {}, ("/dev/fuse",), "void"),
        ({}, {"NVIDIA_VISIBLE_DEVICES": "all"}, (), "void"),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, {"NVIDIA_VISIBLE_DEVICES": "0"}, ("GPU-aaaa",), "GPU-aaaa"),
        ({}, {}, ("GPU-aaaa", "/dev/fuse", "GPU-bbbb"), "GPU-aaaa,GPU-bbbb"),
        ({}, {}, ("MIG-1111", "MIG-GPU-aaaa/1/0"), "MIG-1111,MIG-GPU-aaaa/1/0"),
    ],
)
def test_visible_nvidia_gpus_are_those_of_the_container(
    engine: Any,
    image_environment: dict[str, str],
    explicit: dict[str, str],
    devices: tuple[str, ...],
    visible_devices: str | None,
) -> None:
    apply(
        engine,
        dataclasses.replace(MAIN, image_environment=image_environment, explicit_environment=explicit, devices=devices),
    )
    assert environment_of(engine.asked[0]).get("NVIDIA_VISIBLE_DEVICES") == visible_devices


@pytest.mark.parametrize("devices", [(), ("GPU-aaaa",)])
@pytest.mark.parametrize("of_image", [True, False], ids=["of the image", "of the user"])
def test_no_switch_of_nvidias_runtime_reaches_it(engine: Any, devices: tuple[str, ...], of_image: bool) -> None:
    switches = ("MOFED", "GDS", "NVSWITCH", "GDRCOPY", "IMEX_CHANNELS", "MIG_CONFIG_DEVICES", "WHATEVER_COMES_NEXT")
    harmless = {
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "NVIDIA_REQUIRE_CUDA": "cuda>=12.0",
        "NVIDIA_PYTORCH_VERSION": "24.05",
        "NVIDIA_TF32_OVERRIDE": "0",
        "NVIDIA_API_KEY": "nvapi-x",
        "NVIDIA_NIM_API_KEY": "nvapi-y",
        "MY_NVIDIA_MOFED": "enabled",
    }
    given = {**{f"NVIDIA_{name}": "enabled" for name in switches}, **harmless}
    image, user = (given, {}) if of_image else ({}, given)
    apply(engine, dataclasses.replace(MAIN, image_environment=image, explicit_environment=user, devices=devices))
    got = environment_of(engine.asked[0])
    assert {name: got[f"NVIDIA_{name}"] for name in switches} == dict.fromkeys(switches, "")
    assert {name: got[name] for name in harmless} == harmless


@pytest.mark.parametrize(
    ("container_state", "expected"),
    [
        ({"ExitCode": 137, "FinishedAt": "2026-11-20T15:33:12.123456789Z"}, 137),
        ({"ExitCode": 0, "FinishedAt": "1970-01-01T00:00:01Z"}, 0),
        ({"ExitCode": 128, "FinishedAt": "0001-01-01T00:00:00Z"}, None),
    ],
    ids=["exited", "exited with 0", "never started"],
)
def test_only_a_container_that_was_started_has_an_exit_code(
    engine: Any, container_state: dict[str, Any], expected: int | None
) -> None:
    apply(engine, MAIN)
    engine.made[0].update(container_state)
    assert containers.exit_code_of(engine, engine.made[0]["Id"]) == expected


def test_removed_container_has_no_exit_code(engine: Any) -> None:
    assert containers.exit_code_of(engine, "id-gone") is None


def test_container_without_session_network_joins_only_the_default(engine: Any) -> None:
    single = dataclasses.replace(MAIN, network=None, address=None, mac=None)
    assert apply(engine, single)[0].after == PHRASE.replace("10.128.3.2", "-")
    (request,) = engine.asked
    assert request["HostConfig"]["NetworkMode"] == "backendai-default"
    assert (request["NetworkingConfig"], request.get("MacAddress")) == ({"EndpointsConfig": {}}, None)
    assert not [call for call in engine.calls if call.startswith("connect")]


def test_changes_do_not_contain_the_environment(engine: Any) -> None:
    assert "hunter2" not in str(apply(engine, MAIN))


def test_first_error_is_raised_after_all_containers_were_tried(engine: Any) -> None:
    apply(engine, MAIN, SUB)
    engine.calls.clear()
    for container in engine.made:
        container["State"] = "exited"
    steps = plan_containers(made(engine), [MAIN, SUB])
    engine.made.pop(0)
    with pytest.raises(APIError, match="No such container: id-backendai-train-llm-main1"):
        containers.apply_containers(engine, IDS, steps)
    assert engine.made[0]["State"] == "running"


def test_containers_are_listed_by_name_whatever_the_order_of_the_engine(engine: Any) -> None:
    apply(engine, MAIN, SUB)
    engine.made.reverse()
    listed = [container["Labels"][labels.HOSTNAME] for container in containers.find_labelled(engine, "1")]
    assert listed == ["main1", "sub1"]


def test_removal_includes_running_and_already_removed_containers(engine: Any) -> None:
    apply(engine, MAIN, SUB)
    existing = containers.find_labelled(engine, "1")
    engine.made = [container for container in engine.made if container["Labels"][labels.HOSTNAME] == "sub1"]
    assert containers.remove_containers(engine, existing) == [
        Change(f"container {name}", "running", None)
        for name in (container["Names"][0].lstrip("/") for container in existing)
    ]
    assert engine.made == []


@pytest.mark.parametrize(("timeout", "started"), [(30.0, True), (1.0, False), (0.0, False)])
def test_rejected_start_is_retried_until_the_timeout(
    engine: Any, monkeypatch: pytest.MonkeyPatch, timeout: float, started: bool
) -> None:
    apply(engine, MAIN)
    engine.made[0]["State"] = "exited"
    now, start = [100.0], engine.start
    prepared: list[str] = []
    monkeypatch.setattr(containers.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(containers.time, "sleep", lambda seconds: now.append(now.pop() + seconds))

    def refused_at_first(container: str) -> None:
        if now[0] < 103:
            raise APIError("404", None, "network backendai-train-llm not found")
        start(container)

    monkeypatch.setattr(engine, "start", refused_at_first)
    if not started:
        with pytest.raises(APIError, match="not found"):
            containers.start_stopped(engine, [engine.made[0]], prepared.append, timeout)
        assert (engine.made[0]["State"], now) == ("exited", [100.0 + timeout])
        return
    (change,) = containers.start_stopped(engine, [engine.made[0]], prepared.append, timeout)
    assert (change.after, engine.made[0]["State"], now) == ("running", "running", [103.0])
    assert prepared == [f"id-{MAIN.name}"] * 7, "before each try"


def test_sessions_that_start_together_share_the_parallel_requests() -> None:
    counts: list[int] = []
    lock = threading.Lock()

    class Engine:
        busy = 0

        def remove_container(self, _container: str, **_how: bool) -> None:
            with lock:
                self.busy += 1
                counts.append(self.busy)
            time.sleep(0.01)
            with lock:
                self.busy -= 1

    engine: Any = Engine()
    each = [{"Id": f"c{number}", "Names": [f"/c{number}"], "State": "running"} for number in range(12)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _session: remove_containers(engine, each), range(4)))
    assert len(counts) == 48
    assert 1 < max(counts) <= containers.PARALLEL
