"""The life of a session: placement, network, names, environment, SSH, listing, damage, termination."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from tests.integration.containers import LOGIN, parse_environment
from tests.integration.laboratory import AGENTS, agent_state, in_parallel, run_in, run_on, run_on_all
from tests.integration.probes import list_addresses
from tests.integration.session_requests import FOUR
from tests.integration.sessions import Sessions, StartedSession, started_session

pytestmark = pytest.mark.requests

#: Secret values, and common words that would garble the output if they were masked in it.
ENVIRONMENT = {"GREETING": "hello world", "FOUND": "1", "DEBUG": "running", "TOKEN": "a-secret-of-mine"}
REQUEST = {
    **FOUR,
    "env": ENVIRONMENT,
    "mounts": [{"source": "/srv/data", "target": "/home/work/data", "read_only": True}],
}


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """Four containers on three agents with two engine versions, with a folder that all agents have, created with -vvv.

    The last test of this file terminates it.
    """
    run_on_all("mkdir -p /srv/data && echo here > /srv/data/marker")
    try:
        with started_session(tmp_path_factory.mktemp("four"), "--diff", "-vvv", **REQUEST) as session:
            yield session
    finally:
        run_on_all("rm -rf /srv/data")


def test_multi_node_session_runs_on_all_three_agents(four: StartedSession) -> None:
    record = four.record
    assert record["status"] == "RUNNING"
    assert record["cluster_mode"] == record["requested_cluster_mode"] == "multi-node"
    assert sorted({kernel["agent"] for kernel in record["kernels"]}) == list(AGENTS)
    assert [kernel["hostname"] for kernel in record["kernels"]] == ["main1", "sub1", "sub2", "sub3"]
    assert [kernel["status"] for kernel in record["kernels"]] == ["running"] * 4
    assert record["network"]["driver"] == "vxlan"
    assert record["network"]["mtu"] == 1450
    assert len({kernel["image_digest"] for kernel in record["kernels"]}) == 1


def test_every_container_logs_in_to_every_other_with_host_keys_checked(four: StartedSession) -> None:
    pairs = [(source, target["hostname"]) for source in four.kernels for target in four.kernels]
    outputs = in_parallel(*[partial(run_in, source, *LOGIN, name, "hostname; id -un") for source, name in pairs])
    assert [words.split() for words in outputs] == [[name, "work"] for _source, name in pairs]
    assert len(outputs) == 16


def expected_environment(record: dict[str, Any], kernel: dict[str, Any]) -> dict[str, str]:
    """Return the variables that the documentation lists."""
    workers = [f"{host}:{29500 + rank}" for rank, host in enumerate(["main1", "sub1", "sub2", "sub3"])]
    return {
        "BACKENDAI_CLUSTER_SIZE": "4",
        "BACKENDAI_CLUSTER_HOSTS": "main1,sub1,sub2,sub3",
        "BACKENDAI_CLUSTER_REPLICAS": "main:1,sub:3",
        "BACKENDAI_CLUSTER_HOST": kernel["hostname"],
        "BACKENDAI_CLUSTER_IDX": str(kernel["index"]),
        "BACKENDAI_CLUSTER_ROLE": kernel["role"],
        "BACKENDAI_CLUSTER_LOCAL_RANK": str(kernel["rank"]),
        "BACKENDAI_CLUSTER_MODE": "multi-node",
        "BACKENDAI_CLUSTER_HOSTFILE": "/var/lib/backendai/hostfile",
        "BACKENDAI_KERNEL_ID": kernel["id"],
        "BACKENDAI_SESSION_ID": record["id"],
        "BACKENDAI_SESSION_NAME": record["name"],
        "BACKENDAI_KERNEL_IMAGE": "lab/python:1",
        "BACKENDAI_SERVICE_PORTS": "",
        "BACKENDAI_PREOPEN_PORTS": "",
        "MASTER_ADDR": "main1",
        "MASTER_PORT": "29500",
        "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": kernel["rank"]}}),
        "NCCL_SOCKET_IFNAME": "cluster0",
        "GLOO_SOCKET_IFNAME": "cluster0",
        "OMP_NUM_THREADS": "1",
        "GREETING": "hello world",
    }


@pytest.mark.parametrize("rank", range(4))
def test_environment_in_exec_and_ssh_is_as_documented(four: StartedSession, rank: int) -> None:
    kernel, main = four.kernels[rank], four.kernels[0]
    expected = expected_environment(four.record, kernel)
    for text in (run_in(kernel, "env"), run_in(main, "ssh", kernel["hostname"], "env")):
        environment = parse_environment(text)
        assert {key: environment.get(key) for key in expected} == expected
        assert not {"WORLD_SIZE", "RANK", "LOCAL_RANK"} & set(environment)


def test_environment_values_are_hidden_without_garbling_the_output(four: StartedSession) -> None:
    name, main = four.record["name"], four.kernels[0]
    assert f"+container backendai-{name}-main1: running, image lab/python:1, address {main['address']}" in four.run.text
    assert "a-secret-of-mine" not in four.run.output
    assert "hello world" not in four.run.output


def test_names_resolve_to_session_addresses_and_default_route_is_eth0(four: StartedSession) -> None:
    sub2 = next(kernel["address"] for kernel in four.kernels if kernel["hostname"] == "sub2")
    for kernel in four.kernels:
        assert f"{kernel['address']} {kernel['hostname']}\n" in run_in(kernel, "cat", "/etc/hosts")
        resolved = run_in(kernel, "python3", "-c", "import socket; print(socket.gethostbyname('sub2'))")
        assert resolved.strip() == sub2
        # Who listens on IPv6 and IPv4 sees this address, and looks it up; name servers would not answer on the lab.
        mapped = f"import socket; print(socket.getnameinfo(('::ffff:{sub2}', 1), socket.NI_NAMEREQD)[0])"
        assert run_in(kernel, "timeout", "5", "python3", "-c", mapped).strip() == "sub2.ipv4-mapped"
        assert "dev eth0" in run_in(kernel, "ip", "route", "show", "default")
        assert f"inet {kernel['address']}/" in run_in(kernel, "ip", "-4", "addr", "show", "dev", "cluster0")
        assert sorted(run_in(kernel, "ls", "/sys/class/net").split()) == ["cluster0", "eth0", "lo"]


@pytest.mark.parametrize("agent", ["agent1", "agent3"])
def test_an_agent_has_no_address_in_the_session_network(four: StartedSession, agent: str) -> None:
    subnet = ip_network(four.record["network"]["subnet"])
    addresses = list_addresses(agent)
    assert addresses
    assert [address for address in addresses if ip_address(address) in subnet] == []


def test_mount_is_read_only_in_every_container(four: StartedSession) -> None:
    for kernel in four.kernels:
        assert run_in(kernel, "cat", "/home/work/data/marker").strip() == "here"
        assert "Read-only" in run_in(kernel, "touch", "/home/work/data/new", check=False)


def test_second_run_and_check_mode_report_no_change(four: StartedSession) -> None:
    checked = four.create_again("--check", "--diff")
    assert (checked.code, checked.changed) == (0, 0), checked.output
    rerun = four.create_again()
    assert (rerun.code, rerun.changed) == (0, 0), rerun.output
    assert rerun.record == four.record


def test_different_request_under_the_same_name_is_refused(four: StartedSession) -> None:
    refused = four.create_again(cluster_size=2, env={**ENVIRONMENT, "GREETING": "a-secret-greeting"})
    assert refused.code != 0
    assert f"session_name: '{four.record['name']}' is taken by a session (RUNNING)" in refused.text
    assert "session_cluster_size (is 4, requested 2)" in refused.text
    assert "session_env (GREETING)" in refused.text
    assert "a-secret-greeting" not in refused.output
    assert "hello world" not in refused.output
    assert refused.record["status"] == "ERROR"


def test_check_mode_shows_the_plan_and_changes_nothing(sessions: Sessions) -> None:
    run = sessions.create("--check", "--diff", **FOUR)
    assert run.code == 0, run.output
    assert "+network vxlan 10." in run.text
    assert f"+container backendai-{sessions.name}-sub3: running" in run.text
    assert "Resources are of one container: 4 × (" in run.text
    assert "No folder in session_mounts can be written" in run.text
    assert run.record is None
    assert agent_state() == sessions.initial_state


def test_multi_node_that_fits_on_one_agent_becomes_single_node(sessions: Sessions, tmp_path: Path) -> None:
    hosts = tmp_path / "my-hosts.j2"
    hosts.write_text(
        "127.0.0.1 localhost\n192.0.2.7 licence-server\n"
        "{% for kernel in plan.kernels %}\n{{ kernel.address }} {{ kernel.hostname }}\n{% endfor %}\n"
    )
    run = sessions.create(cluster_mode="multi-node", cluster_size=3, hosts_template=str(hosts))
    assert run.code == 0, run.output
    record = run.record
    assert (record["requested_cluster_mode"], record["cluster_mode"]) == ("multi-node", "single-node")
    assert (record["status"], record["cluster_size"]) == ("RUNNING", 3)
    assert len({kernel["agent"] for kernel in record["kernels"]}) == 1
    assert (record["network"]["driver"], record["network"]["vni"]) == ("bridge", None)
    environment = parse_environment(run_in(record["kernels"][1], "env"))
    assert (environment["BACKENDAI_CLUSTER_MODE"], environment["MASTER_ADDR"]) == ("single-node", "main1")
    assert "192.0.2.7 licence-server" in run_in(record["kernels"][1], "cat", "/etc/hosts")


def test_session_with_a_dead_container_is_degraded(four: StartedSession) -> None:
    """The list is a table in the output, and records in the file."""
    sub = four.kernels[1]
    run_on(sub["agent"], f"docker kill {sub['container']}")
    run = four.sessions.run("list_sessions")
    assert run.code == 0, run.output
    (record,) = [record for record in run.record if record["name"] == four.record["name"]]
    assert (record["id"], record["status"]) == (four.record["id"], "DEGRADED")
    assert [kernel["status"] for kernel in record["kernels"]] == ["running", "exited", "running", "running"]
    (row,) = [line.split() for line in run.output.splitlines() if line.startswith(record["name"])]
    agents = ",".join(dict.fromkeys(kernel["agent"] for kernel in four.kernels))
    assert row[1:7] == ["root", "Multi-node", "4", "4/0", "DEGRADED", agents]


@pytest.mark.parametrize("playbook", ["list_sessions", "schedule_sessions"])
def test_page_shows_the_session_with_its_containers_and_agents(
    four: StartedSession, tmp_path: Path, playbook: str
) -> None:
    path = tmp_path / "page.html"
    run = four.sessions.run(playbook, page_path=str(path))
    assert run.code == 0, run.output
    (data,) = re.findall(r'id="data">(.*?)</script>', path.read_text())
    shown = {session["name"]: session for session in json.loads(data)["sessions"]}[four.record["name"]]
    assert shown["status"] == "DEGRADED"
    assert shown["why"] == f"sub1 on {four.kernels[1]['agent']}: exited"
    assert [kernel[:2] for kernel in shown["kernels"]] == [[each["hostname"], each["agent"]] for each in four.kernels]
    assert [agent["name"] for agent in json.loads(data)["agents"]] == [*AGENTS]
    assert path.stat().st_mode & 0o777 == 0o644


def test_terminate_is_idempotent_and_leaves_nothing(four: StartedSession) -> None:
    sessions, name = four.sessions, four.record["name"]
    during = agent_state()
    checked = sessions.terminate("--check", "--diff", name=name)
    assert checked.code == 0, checked.output
    assert f"-container backendai-{name}-main1: running" in checked.text
    assert agent_state() == during != sessions.initial_state
    ended = sessions.terminate(name=name)
    assert (ended.code, ended.changed > 0) == (0, True), ended.output
    assert (ended.record["id"], ended.record["status"]) == (four.record["id"], "TERMINATED")
    assert agent_state() == sessions.initial_state
    rerun = sessions.terminate(id=four.record["id"])
    assert (rerun.code, rerun.changed) == (0, 0), rerun.output
