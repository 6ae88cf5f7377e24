"""Networks and services that containers do not reach although they are not agents, on engines 20.10 and 26.1."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.integration.internals import AGENT_STATE, RECONCILE_AGENT, SESSIONS, TABLE
from tests.integration.laboratory import Kernel, Run, address, in_parallel, run_in, run_on, run_on_all, run_playbook
from tests.integration.probes import Target, reachable_from_container, reachable_from_host, targets_with_ports
from tests.integration.programs import run_line
from tests.integration.session_requests import THREE
from tests.integration.sessions import Sessions
from tests.integration.waiting import wait_until

pytestmark = [pytest.mark.isolation, pytest.mark.provisioning]

BOTH = ["agent1", "agent3"]
POLICY = f"{AGENT_STATE}/egress.json"
STORAGE = "user1"
NFS, MIRROR = 2049, 8080
NAME_SERVICE = [("udp", 53), ("tcp", 53)]


def storage_targets() -> set[Target]:
    """Return services of the storage host, of which none is open: every response shows that packets arrive."""
    host = address(STORAGE)
    ports = [("tcp", NFS), ("tcp", MIRROR), *NAME_SERVICE]
    return {*targets_with_ports(host), *((protocol, host, port) for protocol, port in ports)}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Kernel]]:
    """Two containers, on an agent of each engine version; the storage host answers every packet with an error."""
    limit = "sysctl --write net.ipv4.icmp_ratelimit"
    with Sessions(tmp_path_factory.mktemp("closed")) as sessions:
        try:
            run_on(STORAGE, f"{limit}=0")
            yield sessions.start(**{**THREE, "cluster_size": 2, "designated_agents": BOTH}).kernels
        finally:
            run_on(STORAGE, f"{limit}=1000")


def provision(folder: Path, *options: str, **variables: object) -> Run:
    """Provision the networks of both agents, given ``agent_*`` variables without their prefix."""
    extra_vars = {f"agent_{name}": value for name, value in variables.items()}
    part = ("--limit", ",".join(BOTH), "--tags", "network")
    return run_playbook("provision_agents", folder, extra_vars, *part, *options)


@pytest.fixture
def provisioned_again(tmp_path: Path) -> Iterator[None]:
    """Afterwards the agents are as the lab provisioned them."""
    yield
    restored = provision(tmp_path)
    assert restored.code == 0, restored.output
    run_on_all(f"systemctl start {RECONCILE_AGENT}.service", BOTH)


@contextmanager
def name_server(server: str) -> Iterator[None]:
    """Let both agents have a name server."""
    run_on_all(f"cp -a /etc/resolv.conf /root/resolv.conf; echo nameserver {server} > /etc/resolv.conf", BOTH)
    try:
        run_on_all(f"systemctl start {RECONCILE_AGENT}.service", BOTH)
        yield
    finally:
        run_on_all(f"cp -a /root/resolv.conf /etc/resolv.conf; systemctl start {RECONCILE_AGENT}.service", BOTH)


def reached(kernels: list[Kernel], targets: set[Target]) -> list[set[Target]]:
    """Return those of the targets that respond, for each container."""
    return in_parallel(*[partial(reachable_from_container, kernel, sorted(targets)) for kernel in kernels])


def dropped(agent: str) -> int:
    """Return the number of packets to closed networks that an agent has dropped."""
    listing = json.loads(run_on(agent, f"nft -j list chain {TABLE} drop_closed"))
    rules = [entry["rule"]["expr"] for entry in listing["nftables"] if "rule" in entry]
    return sum(part["counter"]["packets"] for rule in rules for part in rule if "counter" in part)


@pytest.mark.usefixtures("provisioned_again")
def test_closed_network_is_silent_but_for_exceptions_and_name_servers(kernels: list[Kernel], tmp_path: Path) -> None:
    targets, host = storage_targets(), address(STORAGE)
    assert reached(kernels, targets) == [targets] * 2
    variables = {
        "closed_networks": [host],
        "egress_allow": [
            {"ports": [MIRROR], "destinations": [host]},
            {"protocol": "udp", "ports": [53], "destinations": [host]},
        ],
    }
    closed = provision(tmp_path, "--diff", **variables)
    assert (closed.code, closed.changed > 0) == (0, True), closed.output
    assert "egress closed_networks" in closed.text
    wait_until(lambda: reached(kernels, targets) == [{("tcp", host, MIRROR), ("udp", host, 53)}] * 2)
    for agent in BOTH:
        assert reachable_from_host(agent, sorted(targets)) == targets
    again = provision(tmp_path, **variables)
    assert (again.code, again.changed) == (0, 0), again.output
    with name_server(host):
        opened = {("tcp", host, MIRROR), *((protocol, host, port) for protocol, port in NAME_SERVICE)}
        assert reached(kernels, targets) == [opened] * 2


@pytest.mark.usefixtures("provisioned_again")
def test_managers_are_closed_and_of_gateways_the_sshd(kernels: list[Kernel], tmp_path: Path) -> None:
    inventory = tmp_path / "managers.yml"
    inventory.write_text(json.dumps({"managers": {"hosts": {STORAGE: {}}}}))
    run = provision(tmp_path, "-i", str(inventory))
    assert run.code == 0, run.output
    wait_until(lambda: reached(kernels, storage_targets()) == [set(), set()])
    before = [dropped(agent) for agent in BOTH]
    gateway = address("gateway1")
    for kernel in kernels:
        line = run_line("banner", gateway, 22)
        run_in(kernel, "sh", "-c", f"{line} || true")
    assert all(dropped(agent) > count for agent, count in zip(BOTH, before, strict=True))
    assert reached(kernels, {("tcp", gateway, 443)}) == [{("tcp", gateway, 443)}] * 2


@contextmanager
def storage_mounted() -> Iterator[None]:
    """Let both agents know a server of NFS: the storage host, as if something of it were mounted at /mnt/data."""
    service = {"kind": "NFS", "address": address(STORAGE), "mount": "/mnt/data", "tcp": ["111", str(NFS)], "udp": []}
    known = {"version": 3, "services": [service], "unknown": [], "mounted": [], "asked_at": time.time()}
    text = shlex.quote(json.dumps(known))
    run_on_all(f"echo {text} > {AGENT_STATE}/storage.json; systemctl start {RECONCILE_AGENT}.service", BOTH)
    try:
        yield
    finally:
        run_on_all(f"rm {AGENT_STATE}/storage.json; systemctl start {RECONCILE_AGENT}.service", BOTH)


def test_storage_that_agents_have_mounted_is_closed_counted_and_named(kernels: list[Kernel], tmp_path: Path) -> None:
    host, targets = address(STORAGE), storage_targets()
    described = f"NFS of {host} (tcp 111, {NFS}), mounted at /mnt/data"
    with storage_mounted():
        # Other services of the server stay open.
        wait_until(lambda: reached(kernels, targets) == [targets - {("tcp", host, NFS)}] * 2)
        for agent in BOTH:
            assert reachable_from_host(agent, sorted(targets)) == targets
        report = run_playbook("firewall_report", tmp_path, {})
        assert report.code == 0, report.output
        for agent in BOTH:
            assert re.search(
                rf"{agent}: \d+ packets of the container \S+ to {host}, tcp {NFS} \(NFS, mounted", report.text
            )
        listed = run_playbook("list_agents", tmp_path, {})
        assert f"Containers on {', '.join(BOTH)} do not reach {described}" in listed.text, listed.output
        run_on_all(f"nft list table {TABLE} | grep -q dropped_storage4", BOTH)
    wait_until(lambda: reached(kernels, targets) == [targets] * 2)


@pytest.mark.usefixtures("provisioned_again")
def test_operators_open_storage(kernels: list[Kernel], tmp_path: Path) -> None:
    opened = provision(tmp_path, open_storage=[address(STORAGE)])
    assert opened.code == 0, opened.output
    with storage_mounted():
        assert reached(kernels, storage_targets()) == [storage_targets()] * 2
    refused = provision(tmp_path, open_storage=["storage"])
    assert "agent_open_storage: 'storage' must be an address or a network" in refused.text


def test_unreadable_session_is_named_and_keeps_the_policy(tmp_path: Path) -> None:
    folder = f"{SESSIONS}/00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
    run_on("agent3", f"mkdir {folder} && echo '{{' > {folder}/session.json")
    try:
        refused = provision(tmp_path, "--limit", "agent3", closed_networks=["192.0.2.0/24"])
        assert refused.code == 2
        assert f"{folder}/session.json" in refused.text
        assert "192.0.2.0" not in run_on("agent3", f"cat {POLICY}")
    finally:
        run_on("agent3", f"rm -r {folder}")
