"""WireGuard under the tunnels of sessions: no plain traffic, no spoofed packets, enabled on all agents or none."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.containers import all_can_log_in
from tests.integration.forgery import IN_CONTAINER, TUNNEL, in_container, listen_in, listener
from tests.integration.frames import datagram, ethernet, vxlan
from tests.integration.internals import RECONCILE_AGENT, UNIT_WIREGUARD, WIREGUARD_DEVICE, WIREGUARD_KEYS
from tests.integration.inventories import inventory_options
from tests.integration.laboratory import (
    AGENTS,
    TIMEOUT,
    Kernel,
    address,
    agent_state,
    in_parallel,
    queue_entries,
    run_in,
    run_on,
    run_on_all,
    run_playbook,
)
from tests.integration.probes import mac
from tests.integration.programs import run_line
from tests.integration.reboots import reboot, takes_sessions
from tests.integration.reconciliation import reconcile_paused
from tests.integration.session_requests import THREE
from tests.integration.sessions import Sessions, StartedSession
from tests.integration.waiting import wait_until

pytestmark = [pytest.mark.network, pytest.mark.isolation]

#: The parts of a provisioning that encryption is in.
PARTS = ["--tags", "underlay,firewall"]
PORT = 51830
PEERS = f"wg show {WIREGUARD_DEVICE} peers"


class Encrypted(NamedTuple):
    """Three containers on three agents with WireGuard, and the output of the runs that created them."""

    session: StartedSession
    output: str


def with_wireguard(folder: Path, *agents: str) -> list[str]:
    """Return the options of the lab's inventory with WireGuard on some agents."""
    variables = {"agent_underlay_encryption": "wireguard", "agent_wireguard_port": PORT}
    return inventory_options(folder, **dict.fromkeys(agents, variables))


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    """Enable encryption and start a session; afterwards both are removed."""
    folder = tmp_path_factory.mktemp("wireguard")
    before = agent_state()
    options = [*with_wireguard(folder, *AGENTS), "-vvv", "--diff"]
    try:
        provisioned = run_playbook("provision_agents", folder, {}, *options, *PARTS)
        assert provisioned.code == 0, provisioned.output
        with Sessions(folder) as sessions:
            session = sessions.start(*options, **THREE)
            yield Encrypted(session, provisioned.output + session.run.output)
    finally:
        off = run_playbook("provision_agents", folder, {}, *PARTS)
    assert off.code == 0, off.output
    assert agent_state() == before
    assert run_on("agent1", f"systemctl cat {UNIT_WIREGUARD}", check=False).startswith("No files found")


def sniff_ports(agent: str, *lines: tuple[str, str]) -> set[tuple[int, int]]:
    """Run lines on hosts and return the UDP ports (IP version, port) addressed on an agent's interface meanwhile."""
    with listener(agent, run_line("sniff", "eth0")) as tap:
        assert tap.stdout
        assert tap.stdout.readline() == "ready\n"
        in_parallel(*[partial(run_on, host, line, check=False) for host, line in lines])
        return set(map(tuple, json.loads(tap.communicate(timeout=TIMEOUT)[0])))


def copy_command(source: Kernel, target: Kernel) -> tuple[str, str]:
    """Return a host and a shell line that sends traffic from one container to another."""
    read = shlex.join(["ssh", "-o", "ConnectTimeout=10", target["hostname"], "head -c 300000 /dev/zero"])
    return source["agent"], f"docker exec {source['container']} {read} | wc -c"


def test_session_runs_over_wireguard_with_reduced_mtu(encrypted: Encrypted) -> None:
    network, kernels = encrypted.session.record["network"], encrypted.session.kernels
    assert (network["driver"], network["mtu"]) == ("vxlan", 1370)
    assert all_can_log_in(kernels)
    for kernel in kernels:
        assert run_in(kernel, "cat", "/sys/class/net/cluster0/mtu").strip() == "1370"
        assert len(run_on(kernel["agent"], PEERS).split()) == len(AGENTS) - 1


def test_private_keys_are_readable_by_root_only_and_never_leave_their_agents(encrypted: Encrypted) -> None:
    left = encrypted.output + json.dumps(queue_entries())
    for agent in AGENTS:
        stated = run_on(agent, f"stat -c '%a %U' {WIREGUARD_KEYS} {WIREGUARD_KEYS}/private").split()
        assert stated == ["700", "root", "600", "root"]
        assert run_on(agent, f"cat {WIREGUARD_KEYS}/public").strip() in left
        assert run_on(agent, f"cat {WIREGUARD_KEYS}/private").strip() not in left


@pytest.mark.long
def test_a_second_run_changes_nothing(encrypted: Encrypted, tmp_path: Path) -> None:
    options = [*with_wireguard(tmp_path, *AGENTS), "--diff"]
    # One agent of each Debian release.
    provisioned = run_playbook("provision_agents", tmp_path, {}, *options, "--limit", "agent1,agent3")
    rerun = encrypted.session.create_again(*options)
    assert (provisioned.code, provisioned.changed) == (0, 0), provisioned.output
    assert (rerun.code, rerun.changed) == (0, 0), rerun.output


def test_nothing_but_wireguard_crosses_the_underlay(encrypted: Encrypted) -> None:
    session = encrypted.session
    ports = sniff_ports("agent1", copy_command(session.container_on("agent1"), session.container_on("agent3")))
    assert (4, PORT) in ports
    assert {port for _version, port in ports if port == TUNNEL} == set()


def test_spoofed_peer_datagrams_are_dropped(encrypted: Encrypted) -> None:
    session = encrypted.session
    target, peer = session.container_on("agent1"), session.container_on("agent3")
    show = f"wg show {WIREGUARD_DEVICE} allowed-ips; ip -br -6 addr show {WIREGUARD_DEVICE}"
    inner_addresses = {
        agent: run_on(agent, show).splitlines()[-1].split()[2].split("/")[0] for agent in ("agent1", "agent3")
    }
    assert inner_addresses["agent1"] in run_on("agent3", show)
    target_mac, peer_mac = (
        run_in(kernel, "cat", "/sys/class/net/cluster0/address").strip() for kernel in (target, peer)
    )

    def forged(sender: str, receiver: str, name: bytes) -> str:
        frame = ethernet(peer_mac, target_mac, datagram(peer["address"], target["address"], IN_CONTAINER, name))
        packet = datagram(sender, receiver, TUNNEL, vxlan(session.record["network"]["vni"], frame))
        return ethernet(mac("agent3"), mac("agent1"), packet).hex()

    frames = [
        forged(address("agent3"), address("agent1"), b"forged on the plain underlay"),
        forged(inner_addresses["agent3"], inner_addresses["agent1"], b"forged inner addresses"),
    ]
    forging = ("user1", run_line("send_frames", "eth0", *frames))
    hello = ("agent3", in_container(peer, "send_datagram", target["address"], IN_CONTAINER, "a peer"))
    with listener("agent1", listen_in(target)) as listening:
        assert listening.stdout
        assert listening.stdout.readline() == "ready\n"
        ports = sniff_ports("agent1", forging, hello)
        received = json.loads(listening.communicate(timeout=TIMEOUT)[0])
    assert {(4, TUNNEL), (6, TUNNEL)} <= ports, "the forged datagrams did not reach the agent"
    assert received == ["a peer"]


def test_without_the_device_nothing_is_sent_unencrypted(encrypted: Encrypted) -> None:
    session = encrypted.session
    with reconcile_paused("agent1"):
        run_on("agent1", f"systemctl stop {UNIT_WIREGUARD}")
        ports = sniff_ports("agent1", copy_command(session.container_on("agent1"), session.container_on("agent3")))
        # Handshakes of peers may continue; session traffic does not bypass the device.
        assert {port for _version, port in ports if port == TUNNEL} == set()
    wait_until(lambda: all_can_log_in(session.kernels))
    journal = run_on("agent1", f"journalctl --unit {RECONCILE_AGENT} --no-pager --since -15min")
    assert f"device {WIREGUARD_DEVICE}: missing -> fd62:6169:" in journal


def test_lost_device_and_peer_are_restored(encrypted: Encrypted) -> None:
    with reconcile_paused("agent2", "agent3"):
        run_on("agent2", "kill -9 $(pidof wireguard-go)")
        run_on("agent3", f"wg set {WIREGUARD_DEVICE} peer $({PEERS} | head -n 1) remove")
    complete = [str(len(AGENTS) - 1)] * 2
    wait_until(lambda: [counted.strip() for counted in run_on_all(f"{PEERS} | wc -l", AGENTS[1:])] == complete)
    wait_until(lambda: all_can_log_in(encrypted.session.kernels))


def test_repair_names_a_missing_peer(encrypted: Encrypted, tmp_path: Path) -> None:
    with reconcile_paused("agent2"):
        key = run_on("agent2", f"{PEERS} | head -n 1").strip()
        run_on("agent2", f"wg set {WIREGUARD_DEVICE} peer {key} remove")
        run = encrypted.session.create_again(*with_wireguard(tmp_path, *AGENTS), "--diff")
    assert (run.code, run.changed) == (0, 1), run.output
    assert f"+peer {key} on {WIREGUARD_DEVICE}: fd62:6169:" in run.output


def test_rebooted_agent_rejoins_the_mesh(encrypted: Encrypted) -> None:
    is_back = reboot("agent3")
    wait_until(lambda: is_back() and takes_sessions("agent3"))
    seconds = wait_until(lambda: all_can_log_in(encrypted.session.kernels))
    print(f"restored {seconds:.1f} s after the engine was up")


def test_mixed_encryption_is_refused(encrypted: Encrypted, tmp_path: Path) -> None:
    before = agent_state()
    options, session = with_wireguard(tmp_path, "agent1", "agent2"), encrypted.session
    run = session.create_again(*options, name=f"{session.sessions.name}-mixed")
    assert run.code != 0
    assert (
        "agent_underlay_encryption: agent1, agent2 has wireguard and agent3 has none; a tunnel needs it on both"
        in run.text
    )
    assert agent_state() == before


@pytest.mark.usefixtures("encrypted")
def test_encryption_cannot_be_disabled_while_sessions_run(tmp_path: Path) -> None:
    run = run_playbook("provision_agents", tmp_path, {}, "--limit", "agent1", *PARTS)
    assert run.code != 0
    assert "agent_underlay_encryption: '' would cut off it-" in run.text
    assert run_on("agent1", f"systemctl is-active {UNIT_WIREGUARD}").strip() == "active"


def test_agent_with_its_device_down_is_not_used(encrypted: Encrypted, tmp_path: Path) -> None:
    session = encrypted.session
    with reconcile_paused("agent2"):
        run_on("agent2", f"systemctl stop {UNIT_WIREGUARD}")
        run = session.create_again(*with_wireguard(tmp_path, *AGENTS), name=f"{session.sessions.name}-down")
    assert run.code != 0
    missing = f"{WIREGUARD_DEVICE} is missing; run backendai.cluster.provision_agents"
    assert f"agent2: agent_underlay_encryption: {missing}" in run.text
    wait_until(lambda: all_can_log_in(session.kernels))
