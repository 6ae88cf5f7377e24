"""WireGuard under the tunnels of sessions: nothing goes beside it, nobody gets in, and it comes and goes as a whole."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.conftest import Sessions
from tests.integration.frames import datagram, ethernet, vxlan
from tests.integration.laboratory import AGENTS, INVENTORY, TIMEOUT, Run, at_once, inside, on, play, remains, ssh
from tests.integration.test_isolation import ADDRESS, IN_CONTAINER, LISTEN, SEND, TUNNEL, in_container, in_python
from tests.integration.test_restore import answers, eventually, whole

Kernel = dict[str, Any]

WIREGUARD = {"agent_underlay_encryption": "wireguard"}
WIDE = {"cluster_mode": "multi-node", "cluster_size": 3, "agent_selection": "dispersed", "resources": {"mem": "128m"}}
FOLDER, UNIT, PORT = "/var/lib/backendai/wireguard", "backendai-wireguard.service", 51820

SNIFF = """
import json, socket, struct, sys, time

with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as tap:
    tap.bind(("eth0", 0))
    print("ready", flush=True)
    seen, until = set(), time.monotonic() + float(sys.argv[1])
    while (left := until - time.monotonic()) > 0:
        tap.settimeout(left)
        try:
            frame = tap.recv(65536)[14:]
        except TimeoutError:
            break
        version = frame[0] >> 4
        protocol, start = (frame[9], (frame[0] & 15) * 4) if version == 4 else (frame[6], 40)
        if version in (4, 6) and protocol == 17:
            seen.add((version, struct.unpack_from("!H", frame, start + 2)[0]))
print(json.dumps(sorted(seen)))
"""


class Encrypted:
    """Three containers on three agents with WireGuard, and all that was printed on the way there."""

    def __init__(self, made: Sessions, run: Run, output: str) -> None:
        self.made, self.record, self.output = made, run.record, output
        self.kernels: list[Kernel] = run.record["kernels"]

    def on(self, agent: str) -> Kernel:
        return next(kernel for kernel in self.kernels if kernel["agent"] == agent)


def inventory(folder: Path, *agents: str) -> list[str]:
    """Return the options with which some agents have WireGuard, by the lab's inventory."""
    data = yaml.safe_load(INVENTORY.read_text())
    for agent in agents:
        data["all"]["children"]["agents"]["hosts"][agent].update(WIREGUARD)
    path = folder / "inventory.yml"
    path.write_text(yaml.safe_dump(data))
    return ["-i", str(path)]


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    """Switch encryption on and start a session; in the end, nothing of either is left."""
    folder = tmp_path_factory.mktemp("wireguard")
    before, made = remains(), Sessions(folder)
    try:
        provisioned = play("provision_agents", folder, {}, *inventory(folder, *AGENTS), "-vvv", "--diff")
        assert provisioned.code == 0, provisioned.output
        run = made.create(*inventory(folder, *AGENTS), "-vvv", "--diff", **WIDE)
        assert run.code == 0, run.output
        yield Encrypted(made, run, provisioned.output + run.output)
    finally:
        made.end()
        off = play("provision_agents", folder, {})
    assert off.code == 0, off.output
    assert remains() == before
    assert on("agent1", f"systemctl cat {UNIT}", check=False).startswith("No files found")


def sniffed(agent: str, seconds: float, *lines: tuple[str, str]) -> set[tuple[int, int]]:
    """Run lines on hosts and return the UDP ports (IP version, port) that were sent to across an agent's interface."""
    listening = ssh(agent, in_python(SNIFF, seconds))
    with subprocess.Popen(listening, stdout=subprocess.PIPE, text=True) as tap:
        assert tap.stdout
        assert tap.stdout.readline() == "ready\n"
        at_once(*[partial(on, host, line, check=False) for host, line in lines])
        return {(one[0], one[1]) for one in json.loads(tap.communicate(timeout=TIMEOUT)[0])}


def fetch(source: Kernel, target: Kernel) -> tuple[str, str]:
    """Return the host and the line on it that brings some traffic from one container to another."""
    copy = shlex.join(["ssh", "-o", "ConnectTimeout=3", target["hostname"], "head -c 300000 /dev/zero"])
    return source["agent"], f"docker exec --user work {source['container']} {copy} | wc -c"


def test_a_session_runs_over_wireguard_with_the_mtu_that_is_left(encrypted: Encrypted) -> None:
    assert encrypted.record["network"]["driver"] == "vxlan"
    assert encrypted.record["network"]["mtu"] == 1370
    assert whole(encrypted.kernels)
    for kernel in encrypted.kernels:
        assert inside(kernel, "cat", "/sys/class/net/cluster0/mtu").strip() == "1370"
        assert len(on(kernel["agent"], "wg show baiwg0 peers").split()) == len(AGENTS) - 1


def test_private_keys_are_for_root_alone_and_are_nowhere_else(encrypted: Encrypted) -> None:
    for agent in AGENTS:
        assert on(agent, f"stat -c '%a %U' {FOLDER} {FOLDER}/private").split() == ["700", "root", "600", "root"]
        assert on(agent, f"cat {FOLDER}/public").strip() in encrypted.output
        assert on(agent, f"cat {FOLDER}/private").strip() not in encrypted.output


def test_a_second_run_changes_nothing(encrypted: Encrypted, tmp_path: Path) -> None:
    provisioned = play("provision_agents", tmp_path, {}, *inventory(tmp_path, *AGENTS), "--diff")
    again = encrypted.made.create(*inventory(tmp_path, *AGENTS), "--diff", **WIDE)
    assert (provisioned.code, provisioned.changed) == (0, 0), provisioned.output
    assert (again.code, again.changed) == (0, 0), again.output


def test_nothing_but_wireguard_crosses_the_underlay(encrypted: Encrypted) -> None:
    source, target = encrypted.on("agent1"), encrypted.on("agent3")
    seen = sniffed("agent1", 3, fetch(source, target))
    assert (4, PORT) in seen
    assert {port for _version, port in seen if port == TUNNEL} == set()


def test_datagrams_with_a_peers_address_and_mac_forged_do_not_get_in(encrypted: Encrypted) -> None:
    target, peer = encrypted.on("agent1"), encrypted.on("agent3")
    macs = {agent: on(agent, "cat /sys/class/net/eth0/address").strip() for agent in ("agent1", "agent3")}
    inner = {agent: on(agent, "wg show baiwg0 allowed-ips") for agent in ("agent1", "agent3")}
    own = {agent: on(agent, "ip -br -6 addr show baiwg0").split()[2].split("/")[0] for agent in macs}
    assert own["agent1"] in inner["agent3"]
    here, there = (inside(one, "cat", "/sys/class/net/cluster0/address").strip() for one in (target, peer))

    def forged(addresses: dict[str, str], name: bytes) -> str:
        carried = ethernet(there, here, datagram(peer["address"], target["address"], IN_CONTAINER, name))
        tunnelled = vxlan(encrypted.record["network"]["vni"], carried)
        packet = datagram(addresses["agent3"], addresses["agent1"], TUNNEL, tunnelled)
        return ethernet(macs["agent3"], macs["agent1"], packet).hex()

    frames = [forged(ADDRESS, b"forged on the plain underlay"), forged(own, b"forged inner addresses")]
    hello = f"import socket; socket.socket(type=2).sendto(b'a peer', ('{target['address']}', {IN_CONTAINER}))"
    with ExitStack() as stack:
        line = ssh("agent1", in_container(target, LISTEN, IN_CONTAINER))
        listening = stack.enter_context(subprocess.Popen(line, stdout=subprocess.PIPE, text=True))
        assert listening.stdout
        assert listening.stdout.readline() == "ready\n"
        seen = sniffed("agent1", 3, ("user1", in_python(SEND, "eth0", *frames)), ("agent3", in_container(peer, hello)))
        heard = json.loads(listening.communicate(timeout=TIMEOUT)[0])
    assert {(4, TUNNEL), (6, TUNNEL)} <= seen, "the forged datagrams did not even come to the agent"
    assert heard == ["a peer"]


def test_without_the_device_nothing_goes_in_the_clear_and_it_comes_back_by_itself(encrypted: Encrypted) -> None:
    source, target = encrypted.on("agent1"), encrypted.on("agent3")
    on("agent1", f"systemctl stop backendai-heal.timer backendai-heal.service {UNIT}")
    try:
        seen = sniffed("agent1", 4, fetch(source, target))
        assert {port for _version, port in seen if port in (TUNNEL, PORT)} == set()
    finally:
        on("agent1", "systemctl start backendai-heal.timer")
    eventually(lambda: whole(encrypted.kernels))
    journal = on("agent1", "journalctl --unit backendai-heal --no-pager --since -2min")
    assert "device baiwg0: missing -> fd62:6169:" in journal


def test_a_device_that_dies_and_a_peer_that_is_gone_come_back(encrypted: Encrypted) -> None:
    on("agent2", "kill -9 $(pidof wireguard-go)")
    on("agent3", "wg set baiwg0 peer $(wg show baiwg0 peers | head -n 1) remove")
    complete = len(AGENTS) - 1
    eventually(lambda: all(on(one, "wg show baiwg0 peers | wc -l").strip() == str(complete) for one in AGENTS[1:]))
    eventually(lambda: whole(encrypted.kernels))


def test_a_repair_names_a_peer_that_is_gone(encrypted: Encrypted, tmp_path: Path) -> None:
    on("agent2", "systemctl stop backendai-heal.timer backendai-heal.service")
    try:
        key = on("agent2", "wg show baiwg0 peers | head -n 1").strip()
        on("agent2", f"wg set baiwg0 peer {key} remove")
        run = encrypted.made.create(*inventory(tmp_path, *AGENTS), "--diff", **WIDE)
    finally:
        on("agent2", "systemctl start backendai-heal.timer")
    assert (run.code, run.changed) == (0, 1), run.output
    assert f"+peer {key} on baiwg0: fd62:6169:" in run.output


def test_a_rebooted_agent_is_back_in_the_mesh(encrypted: Encrypted) -> None:
    on("agent3", "systemctl reboot", check=False)
    eventually(lambda: not answers("agent3"))
    eventually(lambda: answers("agent3"))
    seconds = eventually(lambda: whole(encrypted.kernels))
    print(f"whole {seconds:.1f} s after the engine was up")


def test_a_session_of_agents_with_and_without_it_is_refused(encrypted: Encrypted, tmp_path: Path) -> None:
    before = remains()
    run = encrypted.made.create(
        *inventory(tmp_path, "agent1", "agent2"), **{**WIDE, "name": f"{encrypted.made.name}-mixed"}
    )
    assert run.code != 0
    assert (
        "agent_underlay_encryption: agent1, agent2 has wireguard and agent3 has none; a tunnel needs it on both"
        in run.said
    )
    assert remains() == before


@pytest.mark.usefixtures("encrypted")
def test_encryption_is_not_switched_off_under_a_session(tmp_path: Path) -> None:
    run = play("provision_agents", tmp_path, {}, "--limit", "agent1")
    assert run.code != 0
    assert "agent_underlay_encryption: '' would cut off it-" in run.said
    assert on("agent1", f"systemctl is-active {UNIT}").strip() == "active"


def test_an_agent_whose_device_is_down_says_so_and_takes_no_part(encrypted: Encrypted, tmp_path: Path) -> None:
    on("agent2", f"systemctl stop backendai-heal.timer backendai-heal.service {UNIT}")
    try:
        run = encrypted.made.create(*inventory(tmp_path, *AGENTS), **{**WIDE, "name": f"{encrypted.made.name}-down"})
    finally:
        on("agent2", "systemctl start backendai-heal.timer")
    assert run.code != 0
    assert "agent2: agent_underlay_encryption: baiwg0 is missing; run backendai.cluster.provision_agents" in run.said
    eventually(lambda: whole(encrypted.kernels))
