"""The underlay: a namespace without uplink, its bridge, and the veth pair to the control node.

With the machine's own engine none of this is needed: its ``--internal`` network gives the control node the bridge's
address. All functions except ``choose_subnet`` are for the private engine.
"""

from __future__ import annotations

import contextlib
import json
import os
from ipaddress import IPv4Network
from pathlib import Path

from tests.lab.blackholes import addresses_in_use, other_networks, package_source_addresses
from tests.lab.command import LabError, output, succeeds
from tests.lab.identity import UNDERLAY_POOL, Lab, State

NAMESPACES = Path("/run/netns")


def choose_subnet(lab: Lab) -> IPv4Network:
    """Return the lab's underlay: the first unused /24, starting from one that depends on the lab's id."""
    taken = other_networks(lab) + [
        IPv4Network(address) for address in addresses_in_use(lab) | package_source_addresses()
    ]
    candidates = list(UNDERLAY_POOL.subnets(new_prefix=24))
    first = int(lab.id, 16) % len(candidates)
    for candidate in candidates[first:] + candidates[:first]:
        if not any(candidate.overlaps(network) for network in taken):
            return candidate
    raise LabError(f"every /24 of {UNDERLAY_POOL} overlaps a route of this machine")


def namespace_path(lab: Lab) -> Path:
    """Return the path of the lab's namespace in iproute2's folder."""
    return NAMESPACES / lab.name


def holds_process(lab: Lab, pid: int) -> bool:
    """Tell whether a process lives in the lab's namespace.

    A namespace may be recreated under the same name, so the name alone is not sufficient.
    """
    try:
        return namespace_path(lab).stat().st_ino == Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return False


def make_namespace(lab: Lab) -> None:
    """Create the namespace and a bridge in it, without an uplink.

    The bridge's address is the hosts' default gateway, so that they resemble usual hosts. The namespace
    rejects packets to other networks as unreachable, so that connections fail at once instead of timing out.
    """
    in_namespace = ("ip", "-n", lab.name)
    output("ip", "netns", "add", lab.name)
    output(*in_namespace, "link", "set", "lo", "up")
    output(*in_namespace, "link", "add", lab.bridge, "type", "bridge")
    output(*in_namespace, "link", "set", lab.bridge, "up")
    output(*in_namespace, "route", "add", "unreachable", "default")
    # Without a rate limit: with the default of one error per second, a second attempt would time out.
    no_limit = "echo 0 > /proc/sys/net/ipv4/icmp_ratelimit"
    output("nsenter", f"--net={namespace_path(lab)}", "sh", "-euc", no_limit)
    if Path("/proc/sys/net/ipv6").exists():
        output(*in_namespace, "-6", "route", "add", "unreachable", "default")


def connect_control_node(lab: Lab, state: State) -> None:
    """Connect the control node to the bridge by a veth pair, or recreate an incomplete one."""
    address = f"{state.control_node}/{IPv4Network(state.subnet).prefixlen}"
    if not _is_connected(lab, address):
        remove_veth(lab)
        far_end = f"bl{lab.id}n"
        output("ip", "link", "add", lab.veth, "type", "veth", "peer", "name", far_end, "netns", lab.name)
        output("ip", "-n", lab.name, "link", "set", far_end, "master", lab.bridge, "up")
        _disable_forwarding(lab)
        output("ip", "address", "add", address, "dev", lab.veth)
        output("ip", "link", "set", lab.veth, "up")
    _disable_forwarding(lab)


def _is_connected(lab: Lab, address: str) -> bool:
    """Tell whether the veth interface exists, is up, and has its address."""
    try:
        links = json.loads(output("ip", "-j", "address", "show", "dev", lab.veth))
    except LabError:
        return False
    addresses = [
        f"{entry['local']}/{entry['prefixlen']}" for entry in links[0]["addr_info"] if entry["family"] == "inet"
    ]
    return links[0]["operstate"] == "UP" and addresses == [address]


def _disable_forwarding(lab: Lab) -> None:
    """Disable forwarding from the veth interface, also on a machine that forwards between other interfaces."""
    conf = Path("/proc/sys/net/ipv4/conf") / lab.veth
    (conf / "forwarding").write_text("0")
    # A lab needs only IPv4, and a link-local IPv6 address would expose the machine.
    off = Path("/proc/sys/net/ipv6/conf") / lab.veth / "disable_ipv6"
    if off.exists():
        off.write_text("1")


def remove_veth(lab: Lab) -> None:
    """Remove the control node's interface, and with it the peer."""
    if Path("/sys/class/net", lab.veth).exists():
        output("ip", "link", "delete", lab.veth)


def remove_namespace(lab: Lab) -> None:
    """Remove the veth pair and the namespace, even if a crash left only an empty file without its mount."""
    remove_veth(lab)
    if namespace_path(lab).exists():
        output("ip", "netns", "delete", lab.name)
    # iproute2 creates this folder and a mount on it with the first namespace, and does not remove them.
    with contextlib.suppress(OSError):
        if not os.listdir(NAMESPACES):
            succeeds("umount", str(NAMESPACES))
            NAMESPACES.rmdir()
