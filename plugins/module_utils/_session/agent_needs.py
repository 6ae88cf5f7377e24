# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an agent must have so that containers reach other hosts, in one table: how it is found, and how it is mended.

The timer and each claim mend what is this collection's. What is not is reported by list_agents, verify_session and the
timer's journal, with what helps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from .._docker import default_network
from .._docker.client import DockerUnavailableError
from .._docker.sdk import docker
from .._firewall.engine_rules import REMEDY, engine_rules_exist
from .._host.processes import PROC
from .._host.store import Store
from .._model.change import Change
from .._model.errors import EXPECTED, ClusterError, as_phrase, reason
from .._model.network import DEFAULT_BRIDGE
from .._network.iproute import LinkOperation, LinkState, apply_operations

SETTINGS_FILE = Path("/etc/sysctl.d/90-backendai.conf")
"""The kernel settings of the option ``agent_sysctls``, which provisioning has written."""

FORWARD = "net.ipv4.ip_forward"
PROVISION = "run backendai.cluster.provision_agents on it"

Connected = Callable[[], "docker.APIClient"]


class MendError(ClusterError):
    """Something could not be mended. The message is a clause."""


class Lack(NamedTuple):
    """Something that an agent lacks: a ``problem`` as a clause, and the difference as that of a repair."""

    problem: str
    subject: str
    actual: str | None
    expected: str


class Host(NamedTuple):
    """An agent that is looked at: its state, a snapshot of its links, and its engine, which is asked to mend only."""

    store: Store
    state: LinkState
    engine: Connected


class Need(NamedTuple):
    """Something that an agent must have. Without ``mend`` it is not this collection's, and the ``remedy`` is named.

    ``mend`` raises one of :data:`EXPECTED`. Without what is ``vital``, no session starts. Of what is ``harmless``, a
    session that starts makes its own part right; what ``blocks`` takes the agent out of service until it is mended,
    since that may have to wait for sessions to end.
    """

    find: Callable[[Host], Iterable[Lack]]
    mend: Callable[[Host, Lack], None] | None
    remedy: str
    vital: bool = False
    harmless: bool = False
    blocks: bool = False

    @property
    def out_of_service(self) -> bool:
        """Whether an agent that lacks it takes no new sessions."""
        return self.blocks or self.mend is None


class Lacking(NamedTuple):
    """What an agent lacks of a need."""

    need: Need
    lack: Lack

    @property
    def change(self) -> Change:
        """The change of a repair."""
        helps = "" if self.need.mend else f": {self.need.remedy}"
        return Change(
            self.lack.subject, f"{self.lack.actual}{helps}" if helps else self.lack.actual, self.lack.expected
        )

    def sentence(self, consequence: str) -> str:
        """Return the problem with its consequence, and what helps."""
        return f"{self.lack.problem}, so {consequence}: {self.need.remedy}"


def find_lacks(store: Store, state: LinkState | None = None) -> list[Lacking]:
    """Return what this agent lacks."""
    host = Host(store, state or LinkState(), _no_engine)
    return [Lacking(need, lack) for need in NEEDS for lack in need.find(host)]


class Failure(NamedTuple):
    """A need that could not be mended, and a phrase about why and what helps."""

    need: Need
    phrase: str


def mend_lacks(store: Store, engine: Connected) -> tuple[list[Change], list[Failure]]:
    """Mend what this agent lacks; return the changes and the failures.

    What only the engine can mend waits until that answers.
    """
    changes: list[Change] = []
    failures: list[Failure] = []
    state = LinkState()
    for need in NEEDS:
        mend = need.mend
        if mend is None:
            continue
        host = Host(store, state, engine)
        for lacking in [Lacking(need, lack) for lack in need.find(host)]:
            try:
                mend(host, lacking.lack)
                changes.append(lacking.change)
            except DockerUnavailableError:
                pass
            except EXPECTED as error:
                why = as_phrase(reason(error))
                phrase = f"{lacking.lack.problem}, and cannot be mended ({why}): {need.remedy}"
                failures.append(Failure(need, phrase))
            # The next ones may depend on it.
            state = LinkState()
    return changes, failures


def _no_engine() -> docker.APIClient:
    raise DockerUnavailableError("The engine is not asked while an agent is looked at.")


# ---- kernel settings


def _find_host_forwarding(_host: Host) -> Iterator[Lack]:
    yield from _compare_settings({FORWARD: _read_settings().get(FORWARD, "1")})


def _find_settings(_host: Host) -> Iterator[Lack]:
    yield from _compare_settings({name: value for name, value in _read_settings().items() if name != FORWARD})


def _compare_settings(settings: Mapping[str, str]) -> Iterator[Lack]:
    for name, expected in settings.items():
        actual = _read_kernel(name)
        # Provisioning fails for one that the kernel does not have.
        if actual is not None and actual != expected:
            yield Lack(f"{name} is {actual} instead of {expected}", f"kernel setting {name}", actual, expected)


def _mend_setting(_host: Host, lack: Lack) -> None:
    name = lack.subject.rpartition(" ")[2]
    _kernel_path(name).write_text(f"{lack.expected}\n")
    actual = _read_kernel(name)
    if actual != lack.expected:
        raise MendError(f"the kernel makes {actual} of it")


def _read_settings() -> dict[str, str]:
    try:
        lines = [line.partition("=") for line in SETTINGS_FILE.read_text().splitlines() if not line.startswith("#")]
    except FileNotFoundError:
        return {}
    return {name.strip(): " ".join(value.split()) for name, equals, value in lines if equals}


def _read_kernel(name: str) -> str | None:
    """Return the value of a kernel setting, ``None`` if there is none of that name."""
    try:
        return " ".join(_kernel_path(name).read_text().split())
    except FileNotFoundError:
        return None


def _kernel_path(name: str) -> Path:
    """Return the file of a setting; as in sysctl(8), the separator that comes first is that of folders."""
    dotted = name.find(".") >= 0 and not 0 <= name.find("/") < name.find(".")
    return PROC / "sys" / (name.translate(str.maketrans("./", "/.")) if dotted else name)


# ---- forwarding of interfaces; the setting of the whole host is one of the kernel's


def _find_bridge_forwarding(_host: Host) -> Iterator[Lack]:
    yield from _find_forwarding(DEFAULT_BRIDGE)


def _find_way_out_forwarding(host: Host) -> Iterator[Lack]:
    if host.state.way_out:
        yield from _find_forwarding(host.state.way_out.interface)


def _find_forwarding(interface: str) -> Iterator[Lack]:
    setting = f"net/ipv4/conf/{interface}/forwarding"
    # The setting of the whole host changes those of all interfaces with it.
    if _read_kernel(FORWARD) == "1" and _read_kernel(setting) == "0":
        yield Lack(f"{interface} does not forward ({setting} is 0)", f"kernel setting {setting}", "0", "1")


# ---- the default network


def _find_network(host: Host) -> Iterator[Lack]:
    if DEFAULT_BRIDGE not in host.state.links:
        problem = f"the bridge {DEFAULT_BRIDGE} of the default network is missing"
        yield Lack(problem, f"bridge {DEFAULT_BRIDGE}", None, "present")


def _mend_network(host: Host, _lack: Lack) -> None:
    with host.store.lock():
        desired = default_network.read_default_network(host.store)
        if desired is None or not _renew(host, desired):
            raise MendError("containers are attached to it")


def _find_network_option(host: Host) -> Iterator[Lack]:
    """Find an MTU of the network that is not that of the way out, unless sessions use the network."""
    desired, way_out = default_network.read_default_network(host.store), host.state.way_out
    if desired and way_out and desired.mtu != way_out.mtu and not host.store.held_ids():
        subject, before, after = f"network {desired.name} mtu", str(desired.mtu), str(way_out.mtu)
        yield Lack(f"the default network has an MTU of {before} instead of {after}", subject, before, after)


def _mend_network_option(host: Host, lack: Lack) -> None:
    with host.store.lock():
        desired = default_network.read_default_network(host.store)
        # No session can begin to use it: that needs the lock. Containers of others keep it as it is.
        if desired and not host.store.held_ids():
            _renew(host, dataclasses.replace(desired, mtu=int(lack.expected)))


def _renew(host: Host, desired: default_network.DefaultNetwork) -> bool:
    """Create the network again and remember how; return ``False`` if containers are attached to it."""
    client = host.engine()
    renewed = default_network.renew_default_network(client, desired)
    default_network.save_default_network(client, host.store, desired)
    return renewed


def _find_link(host: Host) -> Iterator[Lack]:
    link = host.state.links.get(DEFAULT_BRIDGE)
    if link and "UP" not in link["flags"]:
        yield Lack(f"{DEFAULT_BRIDGE} is down", f"link {DEFAULT_BRIDGE}", "down", "up")
    if link and not any(entry.get("family") == "inet" for entry in host.state.addresses.get(DEFAULT_BRIDGE, [])):
        yield Lack(f"{DEFAULT_BRIDGE} has no address", f"address of {DEFAULT_BRIDGE}", None, "the gateway's")


def _mend_link(host: Host, lack: Lack) -> None:
    line = f"link set dev {DEFAULT_BRIDGE} up"
    if lack.actual is None:
        desired = default_network.read_default_network(host.store)
        address = default_network.gateway_address(host.engine(), desired.name) if desired else None
        if not address:
            raise MendError("the engine does not know it")
        line = f"addr add {address} brd + dev {DEFAULT_BRIDGE}"
    _apply(lack, line)


def _find_link_mtu(host: Host) -> Iterator[Lack]:
    link, way_out = host.state.links.get(DEFAULT_BRIDGE), host.state.way_out
    if link and way_out and link["mtu"] != way_out.mtu:
        subject, before, after = f"link {DEFAULT_BRIDGE}", f"mtu {link['mtu']}", f"mtu {way_out.mtu}"
        yield Lack(f"{DEFAULT_BRIDGE} has {before} instead of {after}", subject, before, after)


def _mend_link_mtu(_host: Host, lack: Lack) -> None:
    _apply(lack, f"link set dev {DEFAULT_BRIDGE} {lack.expected}")


def _apply(lack: Lack, line: str) -> None:
    apply_operations([LinkOperation(Change(lack.subject, lack.actual, lack.expected), (line,))])


# ---- the engine's rules


def _find_rules(_host: Host) -> Iterator[Lack]:
    if not engine_rules_exist():
        yield Lack("the engine's own rules are missing", "rules of the engine", "missing", "present")


NEEDS = (
    Need(_find_host_forwarding, _mend_setting, PROVISION, vital=True),
    Need(_find_settings, _mend_setting, f"give agent_sysctls a value that the kernel keeps, and {PROVISION}"),
    Need(_find_network, _mend_network, f"{REMEDY}, or end its sessions and {PROVISION}", vital=True, blocks=True),
    Need(_find_link, _mend_link, REMEDY, vital=True),
    Need(_find_bridge_forwarding, _mend_setting, PROVISION, vital=True),
    Need(_find_way_out_forwarding, None, "set it to 1, in /etc/sysctl.d as well"),
    Need(_find_network_option, _mend_network_option, PROVISION, harmless=True),
    Need(_find_link_mtu, _mend_link_mtu, PROVISION, harmless=True),
    Need(_find_rules, None, REMEDY),
)
"""What an agent must have, in the order in which it is mended."""
