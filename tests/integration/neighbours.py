"""Containers of two sessions on the default network of one agent, and the frames that one of them sends."""

from __future__ import annotations

import dataclasses
import json

from tests.integration.containers import default_address
from tests.integration.forgery import (
    EXTERNAL,
    IN_CONTAINER,
    ON_AGENT,
    collect_datagrams,
    external_address,
    in_container,
    listen_in,
)
from tests.integration.frames import (
    CUSTOMER_TAG,
    NEXT_BRIDGE,
    SERVICE_TAG,
    SLOW_PROTOCOLS,
    arp_reply,
    datagram,
    ethernet,
    tagged,
)
from tests.integration.internals import DEFAULT_BRIDGE
from tests.integration.laboratory import Kernel, run_in, run_on
from tests.integration.programs import run_line

#: From a container to another host, with its own addresses: always allowed.
GENUINE = "a container to the world"
#: To a neighbour: these arrive where neither the bridge nor the rules separate containers.
BETWEEN = {"a neighbour", "a neighbour with a customer tag", "a neighbour with a service tag"}
#: To daemons of the agent that negotiate with the next bridge: it arrives where the rules are missing.
CONTROL = "a container to the daemons of LACP"


@dataclasses.dataclass(frozen=True)
class Neighbours:
    """Containers of two sessions on one agent; addresses on the default network are read anew: they may change."""

    agent: str
    sender: Kernel
    target: Kernel

    def address(self, kernel: Kernel) -> str:
        return default_address(self.agent, kernel["container"])

    def mac(self, kernel: Kernel) -> str:
        return run_in(kernel, "cat", "/sys/class/net/eth0/address").strip()

    def bridge(self) -> tuple[str, str]:
        """Return the MAC and the IPv4 address of the agent on the default network."""
        (link,) = json.loads(run_on(self.agent, f"ip -j -4 address show dev {DEFAULT_BRIDGE}"))
        mac = run_on(self.agent, f"cat /sys/class/net/{DEFAULT_BRIDGE}/address").strip()
        return mac, str(link["addr_info"][0]["local"])

    def send(self) -> set[str]:
        """Send genuine and forged frames, and return the payloads that arrive anywhere."""
        own_mac, own = self.mac(self.sender), self.address(self.sender)
        target_mac, target = self.mac(self.target), self.address(self.target)
        bridge_mac, bridge = self.bridge()

        def to_target(name: str) -> bytes:
            return ethernet(own_mac, target_mac, datagram(own, target, IN_CONTAINER, name.encode()))

        def to_agent(name: str, mac: str, address: str) -> bytes:
            return ethernet(mac, bridge_mac, datagram(address, bridge, ON_AGENT, name.encode()))

        def to_bridges(name: str, target: str) -> bytes:
            return ethernet(own_mac, target, datagram(own, bridge, ON_AGENT, name.encode()))

        def to_world(name: str, mac: str, address: str) -> bytes:
            return ethernet(mac, bridge_mac, datagram(address, external_address(), EXTERNAL, name.encode()))

        frames = [
            to_world(GENUINE, own_mac, own),
            to_target("a neighbour"),
            tagged(to_target("a neighbour with a customer tag"), CUSTOMER_TAG),
            tagged(to_target("a neighbour with a service tag"), SERVICE_TAG),
            tagged(to_agent("a container to its agent, customer tag", own_mac, own), CUSTOMER_TAG),
            tagged(to_agent("a container to its agent, service tag", own_mac, own), SERVICE_TAG),
            tagged(to_world("a container to the world, tagged", own_mac, own), CUSTOMER_TAG),
            to_world("a container with the address of a neighbour", own_mac, target),
            to_world("a container as a neighbour", target_mac, target),
            to_agent("a container as a neighbour to its agent", target_mac, target),
            to_bridges("a container to the bridges of the spanning tree", "01:80:c2:00:00:00"),
            to_bridges("a container to the neighbours of LLDP", "01:80:c2:00:00:0e"),
            ethernet(own_mac, NEXT_BRIDGE, CONTROL.encode(), SLOW_PROTOCOLS),
            ethernet(own_mac, bridge_mac, datagram("fe80::1", "ff02::1", ON_AGENT, b"a container over IPv6")),
            arp_reply(own_mac, target, bridge_mac, bridge),
            arp_reply(target_mac, own, bridge_mac, bridge),
        ]
        listeners = {
            self.agent: [
                listen_in(self.target),
                run_line("listen", ON_AGENT),
                run_line("listen_frames", SLOW_PROTOCOLS),
            ],
            "user1": [run_line("listen", EXTERNAL)],
        }
        line = in_container(self.sender, "send_frames", "eth0", *(frame.hex() for frame in frames))
        return collect_datagrams(listeners, [(self.agent, line)])

    def target_answers(self) -> bool:
        """Return whether the agent still reaches the target: no forged answer has taken its address over."""
        (entry,) = json.loads(run_on(self.agent, f"ip -j neigh show {self.address(self.target)} dev {DEFAULT_BRIDGE}"))
        banner = run_on(self.agent, run_line("banner", self.address(self.target), 22), check=False)
        return entry["lladdr"] == self.mac(self.target) and "SSH-2.0" in banner
