"""Tests for the environment of containers, as documented in the first section of the reference."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.environment import (
    INTERFACE_VARIABLES,
    MPI_SELECTIONS,
    build_environment,
    derived_variables,
    environment_text,
    hostfile,
    interface_variables,
    parse_environment,
    session_environment,
    threads,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError
from tests.unit.builders import IMAGE, SESSION_ID, plan, spec

TWO_AND_TWO = {"agent1": 2, "agent2": 2}
DERIVED = ("MASTER_ADDR", "MASTER_PORT", "TF_CONFIG", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
THREADS = "OMP_NUM_THREADS"
WORKERS = ["main1:29500", "sub1:29501", "sub2:29502", "sub3:29503"]


def of(rank: int, counts: dict[str, int] | None = None) -> dict[str, str]:
    """Return the session's variables in the container of that rank."""
    session = plan(counts or TWO_AND_TWO)
    return session_environment(session, session.kernels[rank])


def test_environment_of_sub2_of_four_on_two_agents() -> None:
    session = plan(TWO_AND_TWO)
    assert session_environment(session, session.kernels[2]) == {
        "BACKENDAI_SESSION_ID": SESSION_ID,
        "BACKENDAI_SESSION_NAME": "train-llm",
        "BACKENDAI_KERNEL_ID": session.kernels[2].id,
        "BACKENDAI_KERNEL_IMAGE": IMAGE,
        "BACKENDAI_CLUSTER_SIZE": "4",
        "BACKENDAI_CLUSTER_HOSTS": "main1,sub1,sub2,sub3",
        "BACKENDAI_CLUSTER_REPLICAS": "main:1,sub:3",
        "BACKENDAI_CLUSTER_HOST": "sub2",
        "BACKENDAI_CLUSTER_IDX": "2",
        "BACKENDAI_CLUSTER_ROLE": "sub",
        "BACKENDAI_CLUSTER_LOCAL_RANK": "2",
        "BACKENDAI_CLUSTER_MODE": "multi-node",
        "BACKENDAI_CLUSTER_HOSTFILE": "/var/lib/backendai/hostfile",
        "BACKENDAI_SERVICE_PORTS": "",
        "BACKENDAI_PREOPEN_PORTS": "",
        "LOCAL_USER_ID": "1000",
        "LOCAL_GROUP_ID": "1000",
    }


def test_session_of_one_container_has_every_variable() -> None:
    assert of(0, {"agent1": 1}) == {
        "BACKENDAI_SESSION_ID": SESSION_ID,
        "BACKENDAI_SESSION_NAME": "train-llm",
        "BACKENDAI_KERNEL_ID": SESSION_ID,
        "BACKENDAI_KERNEL_IMAGE": IMAGE,
        "BACKENDAI_CLUSTER_SIZE": "1",
        "BACKENDAI_CLUSTER_HOSTS": "main1",
        "BACKENDAI_CLUSTER_REPLICAS": "main:1",
        "BACKENDAI_CLUSTER_HOST": "main1",
        "BACKENDAI_CLUSTER_IDX": "1",
        "BACKENDAI_CLUSTER_ROLE": "main",
        "BACKENDAI_CLUSTER_LOCAL_RANK": "0",
        "BACKENDAI_CLUSTER_MODE": "single-node",
        "BACKENDAI_CLUSTER_HOSTFILE": "/var/lib/backendai/hostfile",
        "BACKENDAI_SERVICE_PORTS": "",
        "BACKENDAI_PREOPEN_PORTS": "",
        "LOCAL_USER_ID": "1000",
        "LOCAL_GROUP_ID": "1000",
    }


def test_apps_are_only_in_the_environment_of_main1() -> None:
    session = plan(
        TWO_AND_TWO, apps=[{"name": "jupyter", "port": 8888, "command": "jupyter lab"}, {"name": "w", "port": 80}]
    )
    environments = [session_environment(session, kernel) for kernel in session.kernels]
    assert [environment["BACKENDAI_SERVICE_PORTS"] for environment in environments] == [
        "jupyter:http:8888,w:http:80",
        "",
        "",
        "",
    ]
    assert [environment["BACKENDAI_PREOPEN_PORTS"] for environment in environments] == ["80", "", "", ""]


def test_user_and_group_ids_are_in_the_environment() -> None:
    environment = session_environment(session := plan(TWO_AND_TWO, uid=1234, gid=2345), session.kernels[1])
    assert (environment["LOCAL_USER_ID"], environment["LOCAL_GROUP_ID"]) == ("1234", "2345")


def test_roles_are_listed_in_rank_order_with_their_images() -> None:
    worker = {"replicas": 2, "image": "other:1"}
    session = plan(TWO_AND_TWO, cluster_size=1, roles={"ps": {}, "worker": worker, "main": {}})
    environment = session_environment(session, session.kernels[3])
    assert {
        key.removeprefix("BACKENDAI_"): environment[key] for key in environment if "CLUSTER" in key or "IMAGE" in key
    } == {
        "KERNEL_IMAGE": "other:1",
        "CLUSTER_SIZE": "4",
        "CLUSTER_HOSTS": "main1,ps1,worker1,worker2",
        "CLUSTER_REPLICAS": "main:1,ps:1,worker:2",
        "CLUSTER_HOST": "worker2",
        "CLUSTER_IDX": "2",
        "CLUSTER_ROLE": "worker",
        "CLUSTER_LOCAL_RANK": "3",
        "CLUSTER_MODE": "multi-node",
        "CLUSTER_HOSTFILE": "/var/lib/backendai/hostfile",
    }


def test_cluster_mode_is_the_one_in_effect() -> None:
    assert of(3, {"agent1": 4})["BACKENDAI_CLUSTER_MODE"] == "single-node"


def test_training_variables_contain_the_master_and_the_task_index() -> None:
    environment = build_environment({}, of(2))
    assert {name: environment[name] for name in DERIVED if name != "TF_CONFIG"} == {
        "MASTER_ADDR": "main1",
        "MASTER_PORT": "29500",
        "NCCL_SOCKET_IFNAME": "cluster0",
        "GLOO_SOCKET_IFNAME": "cluster0",
    }
    assert json.loads(environment["TF_CONFIG"]) == {
        "cluster": {"worker": WORKERS},
        "task": {"type": "worker", "index": 2},
    }


def test_open_mpi_uses_the_session_networks() -> None:
    environment = build_environment({"OMPI_MCA_btl_tcp_if_include": "ib0"}, of(1), networks="10.128.3.0/29")
    assert {name: value for name, value in environment.items() if "MCA" in name} == {
        "OMPI_MCA_oob_tcp_if_include": "10.128.3.0/29",
        "OMPI_MCA_btl_tcp_if_include": "ib0",
        "PRTE_MCA_prte_if_include": "10.128.3.0/29",
    }


@pytest.mark.parametrize("selection", MPI_SELECTIONS)
def test_open_mpi_exclude_list_prevents_an_include_list(selection: str) -> None:
    environment = build_environment({}, {**of(1), f"{selection}exclude": "lo"}, networks="10.128.3.0/29")
    assert f"{selection}include" not in environment
    assert len([name for name in environment if name.endswith("_include")]) == len(MPI_SELECTIONS) - 1


EVERYWHERE = {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "FI_TCP_IFACE", "FI_SOCKETS_IFACE"}
LAUNCHERS = {"HYDRA_IFACE", "I_MPI_HYDRA_IFACE"}


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, EVERYWHERE | LAUNCHERS | {"UCX_NET_DEVICES"}),
        ({"infiniband": True}, EVERYWHERE | LAUNCHERS),
        ({"network_driver": "host"}, EVERYWHERE),
        ({"network_driver": "host", "infiniband": True}, EVERYWHERE),
    ],
    ids=["network of the session", "InfiniBand", "network of the agents", "both"],
)
def test_programs_get_the_interface_unless_that_would_switch_rdma_off(changes: dict[str, Any], names: set[str]) -> None:
    asked = {key: value for key, value in changes.items() if key != "infiniband"}
    made = plan({"agent1": 2, "agent2": 1}, **asked)
    made = dataclasses.replace(made, infiniband=changes.get("infiniband", False))
    session = session_environment(made, made.kernels[1])
    interface = made.interface_on("agent1")
    environment = build_environment({}, session, interface, interface_names=interface_variables(made))
    assert {name for name, value in environment.items() if value == interface} == names


def test_a_session_of_one_container_names_no_interface() -> None:
    assert interface_variables(plan({"agent1": 1})) == ()


@pytest.mark.parametrize("name", sorted(EVERYWHERE | LAUNCHERS | {"UCX_NET_DEVICES"}))
def test_an_interface_that_somebody_has_chosen_stays(name: str) -> None:
    names = interface_variables(plan({"agent1": 2}))
    assert build_environment({name: "ib0"}, of(1), interface_names=names)[name] == "ib0"
    assert build_environment({name: "ib0"}, {**of(1), name: "ib1"}, interface_names=names)[name] == "ib1"


PROXIES = [written for name in ("http", "https", "all") for written in (f"{name}_proxy", f"{name}_proxy".upper())]


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("where", ["image", "user"])
def test_the_names_of_a_session_are_reached_without_a_proxy(proxy: str, where: str) -> None:
    image, user = ({proxy: "http://p:3128"}, {}) if where == "image" else ({}, {proxy: "http://p:3128"})
    environment = build_environment(image, {**of(1), **user})
    assert environment["no_proxy"] == environment["NO_PROXY"] == "localhost,127.0.0.1,main1,sub1,sub2,sub3"


@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_who_names_hosts_without_a_proxy_decides_alone(name: str) -> None:
    environment = build_environment({"HTTP_PROXY": "http://p:3128"}, {**of(1), name: "example.com"})
    assert {key: value for key, value in environment.items() if key.lower() == "no_proxy"} == {name: "example.com"}


@pytest.mark.parametrize("given", [{}, {"http_proxy": ""}])
def test_without_a_proxy_no_host_is_named(given: dict[str, str]) -> None:
    assert not {"no_proxy", "NO_PROXY"} & build_environment(given, of(1)).keys()


def test_unknown_interface_is_not_set_before_the_start() -> None:
    names = {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}
    assert names & build_environment({}, of(1), "").keys() == set()
    assert build_environment({}, {**of(1), "NCCL_SOCKET_IFNAME": "ib0"}, "")["NCCL_SOCKET_IFNAME"] == "ib0"


@pytest.mark.parametrize(
    ("resources", "slots", "expected_threads"),
    [
        ({"cpu": 1}, 1, 1),
        ({"cpu": 4, "mem": "4g", "shmem": "2g"}, 4, 4),
        ({"cpu": 9, "cuda.device": 2}, 2, 4),
        ({"cpu": 1, "cuda.device": 1, "rocm.device": 1}, 2, 1),
    ],
    ids=["one core", "four cores", "two GPUs", "more accelerators than cores"],
)
def test_hosts_have_slots_and_threads_by_accelerators_or_cores(
    resources: dict[str, Any], slots: int, expected_threads: int
) -> None:
    session = plan(TWO_AND_TWO, resources=resources)
    assert hostfile(session) == "".join(f"{name} slots={slots}\n" for name in ("main1", "sub1", "sub2", "sub3"))
    assert [threads(kernel) for kernel in session.kernels] == [expected_threads] * 4


def test_hostfile_has_the_slots_of_each_role_in_rank_order() -> None:
    roles = {"main": {"resources": {"cpu": 2}}, "worker": {"replicas": 2, "resources": {"cpu": 3}}}
    session = plan({"agent1": 3}, cluster_size=1, roles=roles)
    assert hostfile(session) == "main1 slots=2\nworker1 slots=3\nworker2 slots=3\n"


@pytest.mark.parametrize(
    ("image", "explicit", "expected"),
    [({}, {}, "4"), ({THREADS: "1"}, {}, "1"), ({THREADS: "1"}, {THREADS: "2"}, "2"), ({THREADS: ""}, {}, "4")],
    ids=["nobody", "image", "user", "empty"],
)
def test_number_of_threads_is_derived_unless_it_is_set(
    image: dict[str, str], explicit: dict[str, str], expected: str
) -> None:
    assert build_environment(image, {**of(1), **explicit}, omp_threads=4)[THREADS] == expected


def test_number_of_threads_is_left_to_programs_in_a_session_of_one_container() -> None:
    assert THREADS not in build_environment({}, of(0, {"agent1": 1}), omp_threads=4)


def test_session_of_two_containers_is_distributed() -> None:
    assert build_environment({}, of(1, {"agent1": 2}))["MASTER_ADDR"] == "main1"


def test_session_of_one_container_has_no_derived_variables() -> None:
    explicit = of(0, {"agent1": 1})
    assert build_environment({"PATH": "/bin"}, explicit) == {"PATH": "/bin", **explicit}


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("name", ["WORLD_SIZE", "RANK", "LOCAL_RANK"])
def test_variables_of_launchers_are_never_set(size: int, name: str) -> None:
    assert name not in build_environment({}, of(0, {"agent1": size}))


@pytest.mark.parametrize("name", DERIVED)
def test_values_of_the_user_are_kept(name: str) -> None:
    assert build_environment({name: "image"}, {**of(1), name: "user"})[name] == "user"


@pytest.mark.parametrize("name", DERIVED)
def test_values_of_the_image_are_kept(name: str) -> None:
    assert build_environment({name: "image"}, of(1))[name] == "image"


@pytest.mark.parametrize("name", DERIVED)
@pytest.mark.parametrize(("image", "explicit_value"), [("", None), (None, ""), ("image", "")])
def test_empty_value_is_replaced(name: str, image: str | None, explicit_value: str | None) -> None:
    image_environment = {} if image is None else {name: image}
    explicit = of(1) if explicit_value is None else {**of(1), name: explicit_value}
    assert build_environment(image_environment, explicit)[name] == build_environment({}, of(1))[name]


def test_explicit_master_port_does_not_change_the_workers() -> None:
    environment = build_environment({}, {**of(1), "MASTER_PORT": "1234"})
    assert environment["MASTER_PORT"] == "1234"
    assert json.loads(environment["TF_CONFIG"])["cluster"]["worker"] == WORKERS


@pytest.mark.parametrize(("value", "base"), [("30000", 30000), ("", 29500)])
def test_image_may_change_the_base_port(value: str, base: int) -> None:
    environment = build_environment({"BACKENDAI_DIST_MASTER_PORT": value}, of(1))
    assert environment["MASTER_PORT"] == str(base)
    assert json.loads(environment["TF_CONFIG"])["cluster"]["worker"][3] == f"sub3:{base + 3}"


@pytest.mark.parametrize("port", ["http", "0", "029500", "65536", "-1", " 1"])
def test_invalid_base_port_is_rejected(port: str) -> None:
    with pytest.raises(ValueError, match=rf"^BACKENDAI_DIST_MASTER_PORT: '{port}' is not a port$"):
        build_environment({"BACKENDAI_DIST_MASTER_PORT": port}, of(1))


def test_only_unset_variables_are_derived() -> None:
    explicit = {**of(1), "MASTER_PORT": "1234", "TF_CONFIG": ""}
    assert list(derived_variables({"GLOO_SOCKET_IFNAME": "eth9"}, explicit)) == [
        "MASTER_ADDR",
        "TF_CONFIG",
        *(name for name in INTERFACE_VARIABLES if name != "GLOO_SOCKET_IFNAME"),
    ]
    assert derived_variables({}, of(0, {"agent1": 1})) == {}


def test_session_variables_override_those_of_the_image() -> None:
    assert build_environment({"BACKENDAI_CLUSTER_SIZE": "9", "HOME": "/root"}, of(1))["BACKENDAI_CLUSTER_SIZE"] == "4"


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("", {}),
        ("A=1\nB=2\n", {"A": "1", "B": "2"}),
        ("A=a=b\nB=\n", {"A": "a=b", "B": ""}),
        ("# A=1\n  # B=2\n\nC\nD=#4\n", {"D": "#4"}),
        ("A= 1 \n B=2", {"A": " 1 ", "B": "2"}),
        ("A=1\nA=2\n", {"A": "2"}),
    ],
)
def test_environment_file_has_a_variable_in_each_line(text: str, variables: dict[str, str]) -> None:
    assert parse_environment(text) == variables


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True), st.text(max_size=8), max_size=4))
def test_every_accepted_environment_survives_its_file(env: dict[str, str]) -> None:
    try:
        parsed = spec(env=env).env
    except ValidationError:
        return
    assert parse_environment(environment_text(parsed)) == parsed


@pytest.mark.parametrize("mark", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"], ids=repr)
def test_only_a_newline_ends_a_variable(mark: str) -> None:
    assert parse_environment(f"A=1{mark}BACKENDAI_CLUSTER_SIZE=9\n") == {"A": f"1{mark}BACKENDAI_CLUSTER_SIZE=9"}
