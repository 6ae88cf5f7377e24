"""How a host reaches other networks, in a network namespace of its own with real routes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit.builders import REPOSITORY

LOOK = """\
import sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import LinkState
print(LinkState().way_out)
"""
CARD = """
ip link set lo up
ip link add wan type veth peer name other
ip link set other up
ip address add 192.0.2.2/24 dev wan
ip link set wan mtu 1450 up
ip link add lan mtu 1400 type veth peer name another
ip link set another up
ip address add 198.51.100.2/24 dev lan
ip link set lan up
"""


def way_out(*lines: str) -> str:
    """Return what is found on a host with two cards, ``wan`` and ``lan``, after more commands."""
    script = "\n".join(["set -eu", CARD, *lines, 'exec "$1" -c "$2" "$3"'])
    command = [
        "unshare",
        "--net",
        "sh",
        "-c",
        script,
        "sh",
        sys.executable,
        LOOK,
        str(REPOSITORY / ".venv/collections"),
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def found(interface: str, mtu: int) -> str:
    return f"WayOut(interface='{interface}', mtu={mtu})"


@pytest.mark.parametrize(
    ("lines", "interface", "mtu"),
    [
        (["ip route add default via 192.0.2.1"], "wan", 1450),
        (["ip route add default via 192.0.2.1 mtu 1300"], "wan", 1300),
        (["ip route add default via 192.0.2.1 mtu lock 1300"], "wan", 1300),
        (
            ["ip route add default via 192.0.2.1 metric 9", "ip route add default via 198.51.100.1 metric 5"],
            "lan",
            1400,
        ),
        # As OpenVPN does it.
        (["ip route add default via 192.0.2.1", "ip route add 128.0.0.0/1 via 198.51.100.1"], "lan", 1400),
        # As wg-quick does it.
        (
            [
                "ip route add default via 192.0.2.1",
                "ip route add default via 198.51.100.1 table 77",
                "ip rule add table 77",
            ],
            "lan",
            1400,
        ),
    ],
    ids=["a card", "a route", "a locked route", "the better route", "halves", "a rule"],
)
def test_the_way_out_is_that_of_packets(lines: list[str], interface: str, mtu: int) -> None:
    assert way_out(*lines) == found(interface, mtu)


@pytest.mark.parametrize("lines", [[], ["ip route add unreachable default"]], ids=["none", "unreachable"])
def test_without_a_default_route_it_is_the_narrowest_card(lines: list[str]) -> None:
    bridge = "ip link add br0 type bridge; ip address add 203.0.113.9/32 dev br0; ip link set br0 mtu 1200 up"
    assert way_out(bridge, "ip route flush 203.0.113.9/32", *lines) == found("lan", 1400)


def test_a_host_without_any_address_has_no_way_out() -> None:
    assert way_out("ip address flush dev wan; ip address flush dev lan") == "None"
