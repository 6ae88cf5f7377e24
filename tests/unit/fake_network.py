"""Fake network of a host: links and firewall table of an agent in memory, without running commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall import connections, sync
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.connections import (
    ConnectionLimit,
    render_connections,
)
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.table import FirewallError, Table
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.would_drop import WouldDrop
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._network import iproute, vxlan
from ansible_collections.backendai.cluster.plugins.module_utils._network.container import (
    ContainerNetwork,
    InterfacePlan,
)
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import WayOut
from ansible_collections.backendai.cluster.plugins.module_utils._session import (
    agent_needs,
    interfaces,
    links,
)


class FakeNetwork:
    """``links`` are the names of tunnels, ``table`` is the text of the firewall table, ``plugged`` are the containers.

    ``unplugged`` is, by hostname, the interface that a container lacks. ``refuses`` is the error of nft for any text,
    ``pins`` is the newest update of rules
    for ports alone, ``connections`` the text of the table that limits connections, ``engine_rules`` whether the
    engine's own rules exist.
    """

    def __init__(self) -> None:
        self.links: set[str] = set()
        self.table = ""
        self.refuses = ""
        self.engine_rules = True
        self.pins = ""
        self.connections = render_connections(ConnectionLimit().connections)
        self.plugged: list[ContainerNetwork] = []
        self.unplugged: dict[str, str] = {}

    def __call__(self, command: list[str], lines: list[str], pid: int | None) -> None:
        self.batch(command, lines, pid)

    def batch(self, _command: list[str], lines: list[str], _pid: int | None) -> None:
        for line in lines:
            words = line.split()
            if words[:2] == ["link", "add"]:
                self.links.add(words[2])
            if words[:2] == ["link", "del"]:
                self.links.remove(words[3])

    def plan_table(self, ruleset: str) -> list[Change]:
        return [] if self.table == ruleset else [Change("firewall table inet backendai", None, "there")]

    def check_table(self, _ruleset: str) -> None:
        if self.refuses:
            raise FirewallError(self.refuses)

    def apply_table(self, ruleset: str) -> None:
        if ruleset.startswith("flush set"):
            if not self.table:
                raise FirewallError("nft: No such file or directory")
            self.pins = ruleset
        else:
            self.table = ruleset

    def plan_container_networks(self, desired: list[ContainerNetwork], _look: iproute.LinkState) -> InterfacePlan:
        self.plugged = desired
        return InterfacePlan([], self.unplugged)


class FakeTable:
    """The table that limits connections, in a :class:`FakeNetwork`."""

    def __init__(self, kernel: FakeNetwork) -> None:
        self._kernel = kernel

    def plan(self, ruleset: str) -> list[Change]:
        return [] if self._kernel.connections == ruleset else [Change("firewall connections", None, "there")]

    def apply(self, ruleset: str) -> None:
        self._kernel.connections = ruleset


def patch_network(patch: pytest.MonkeyPatch) -> FakeNetwork:
    """Replace the network adapters by a fake, which is returned; existing links never need a change.

    A test that replaces one of them again uses the same ``patch``, which restores them in the right order.
    """
    kernel = FakeNetwork()
    patch.setattr(iproute, "_run_input", kernel)
    patch.setattr(iproute.LinkState, "links", property(lambda _look: {name: {"ifname": name} for name in kernel.links}))
    patch.setattr(iproute, "show", lambda *words: [{"ifname": words[-1]}] if words[-1] in kernel.links else [])
    patch.setattr(vxlan, "_why_recreate", lambda _wanted, _link: "")
    patch.setattr(vxlan, "_plan_adjustments", lambda _wanted, _link: [])
    patch.setattr(vxlan, "_plan_entries", lambda _wanted, _look: [])
    patch.setattr(vxlan, "plan_without_addresses", lambda _name, _look: [])
    patch.setattr(links, "plan_bridge", lambda _bridge, _look: [])
    patch.setattr(interfaces, "plan_container_networks", kernel.plan_container_networks)
    patch.setattr(interfaces, "plan_translation", lambda *_container, **_state: [])
    patch.setattr(agent_needs, "NEEDS", agent_needs.NEEDS[-1:])
    patch.setattr(agent_needs, "engine_rules_exist", lambda: kernel.engine_rules)
    patch.setattr(iproute.LinkState, "way_out", WayOut("eth0", 1500))
    patch.setattr(interfaces, "RETRY_SECONDS", 0.0)
    patch.setattr(iproute.LinkState, "addresses", property(lambda _look: {"backendai0": [{"local": "172.18.0.1"}]}))
    patch.setattr(sync, "read_pins", lambda _look: [])
    patch.setattr(sync, "read_would_drop", WouldDrop)
    patch.setattr(sync, "plan_stale_neighbours", lambda _look: [])
    patch.setattr(Table, "read", lambda _table: kernel.table)
    patch.setattr(Table, "plan", lambda _table, ruleset: kernel.plan_table(ruleset))
    patch.setattr(Table, "check", lambda _table, ruleset: kernel.check_table(ruleset))
    patch.setattr(Table, "apply", lambda _table, ruleset: kernel.apply_table(ruleset))
    patch.setattr(connections, "interfaces", lambda: ["backendai0", "eth0"])
    patch.setattr(connections, "TRACKED", Path("/nowhere"))
    patch.setattr(connections, "CONNECTIONS_TABLE", FakeTable(kernel))
    patch.setattr(sync, "external_interfaces", lambda: ["eth0"])
    patch.setattr(sync, "name_servers", list)
    return kernel
