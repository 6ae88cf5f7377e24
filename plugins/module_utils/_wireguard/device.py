# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The WireGuard device of an agent, and the peers that it knows. No private key is ever read."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Iterable

from .._model.change import Change
from .._model.errors import ClusterError, one_line
from .._model.network import Underlay
from .._network.iproute import show
from .mesh import DEVICE, WireGuardConfig, endpoint_port

# The systemd unit that makes the device, with its key, port, address and MTU.
UNIT = "backendai-wireguard.service"

_NOTHING = "(none)"


class WireGuardError(ClusterError):
    """A command failed that is about the device; the message holds the command and what it said."""


@dataclasses.dataclass(frozen=True)
class WireGuardDevice:
    """A device as it is: its addresses, its MTU in bytes, its public key and UDP port; those it has once it answers."""

    up: bool
    addresses: tuple[str, ...]
    mtu: int
    public_key: str = ""
    port: int = 0


@dataclasses.dataclass(frozen=True)
class DeviceStep:
    """A change, with its words for ``wg set``; ``restart`` has the unit make the device anew instead."""

    change: Change
    wg_args: tuple[str, ...] = ()
    restart: bool = False


def read_device() -> WireGuardDevice | None:
    """Return the device of this host; ``None`` where there is none."""
    link = next(iter(show("ip", "-j", "addr", "show", "dev", DEVICE)), None)
    if link is None:
        return None
    found = WireGuardDevice("UP" in link["flags"], tuple(entry["local"] for entry in link["addr_info"]), link["mtu"])
    try:
        return dataclasses.replace(found, public_key=_ask("public-key"), port=int(_ask("listen-port")))
    except WireGuardError:
        # wireguard-go has died, or is about to begin.
        return found


def difference(device: WireGuardDevice | None, wanted: Underlay) -> str:
    """Return what of a device is not as wanted; empty when all of it is."""
    if device is None:
        return "missing"
    seen = (device.up, wanted.address in device.addresses, device.public_key, device.port, device.mtu)
    right = (True, True, wanted.public_key, endpoint_port(wanted), wanted.mtu)
    names = ("down", "without its address", "without its key", f"at port {device.port}", f"at mtu {device.mtu}")
    return next((name for name, is_now, should in zip(names, seen, right) if is_now != should), "")


def plan_device(wanted: WireGuardConfig | None) -> list[DeviceStep]:
    """Return what must change for the device and its peers to be as wanted; without a mesh it should know nobody.

    WireGuard itself follows a peer that moves, so another endpoint is no difference; none at all is one.
    """
    device = read_device()
    if wanted is None:
        return _plan_peers([]) if device and device.public_key else []
    why = difference(device, wanted.own)
    if not why:
        return _plan_peers(wanted.peers)
    phrase = f"{wanted.own.address}, mtu {wanted.own.mtu}"
    anew = DeviceStep(Change(f"device {DEVICE}", why if device else None, phrase), restart=True)
    return [anew, *(_add(peer, None) for peer in wanted.peers)]


def apply_device(steps: Iterable[DeviceStep]) -> None:
    """Take all steps: a restart of the unit first, then all peers in one call. Raises :class:`WireGuardError`."""
    listed = list(steps)
    if any(step.restart for step in listed):
        _run("systemctl", "restart", UNIT)
    words = [word for step in listed for word in step.wg_args]
    if words:
        _run("wg", "set", DEVICE, *words)


def _plan_peers(wanted: Iterable[Underlay]) -> list[DeviceStep]:
    """Return the peers that are missing, wrong or in no plan, on a device that answers."""
    allowed, endpoints = _listing("allowed-ips"), _listing("endpoints")
    due = {peer.public_key: peer for peer in wanted}
    gone = [
        DeviceStep(Change(_subject(key), addresses, None), ("peer", key, "remove"))
        for key, addresses in allowed.items()
        if key not in due
    ]
    found = [
        _add(peer, allowed.get(key))
        for key, peer in due.items()
        if allowed.get(key) != f"{peer.address}/128" or endpoints.get(key, _NOTHING) == _NOTHING
    ]
    return gone + found


def _add(peer: Underlay, before: str | None) -> DeviceStep:
    words = ("peer", peer.public_key, "endpoint", peer.endpoint, "allowed-ips", f"{peer.address}/128")
    return DeviceStep(Change(_subject(peer.public_key), before, f"{peer.address}/128 at {peer.endpoint}"), words)


def _subject(public_key: str) -> str:
    return f"peer {public_key} on {DEVICE}"


def _listing(what: str) -> dict[str, str]:
    """Return one thing of each peer by its public key, as ``wg show`` lists it."""
    return dict(line.split("\t", 1) for line in _ask(what).splitlines())


def _ask(what: str) -> str:
    return _run("wg", "show", DEVICE, what).strip()


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        missing = f"{error.filename} is not installed on this host: run backendai.cluster.provision_agents on it."
        raise WireGuardError(missing) from error
    if done.returncode:
        raise WireGuardError(f"{' '.join(command)}: {one_line(done.stderr)}")
    return done.stdout
