# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans and applies the WireGuard device of an agent and its peers. No private key is ever read."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from typing import NamedTuple

from .._model.change import Change
from .._model.errors import ClusterError, one_line
from .._model.network import Underlay
from .._network.iproute import show
from .mesh import DEVICE, WireGuardConfig, endpoint_port

# The systemd unit that creates the device, with its key, port, address and MTU.
UNIT = "backendai-wireguard.service"

_NOTHING = "(none)"


class WireGuardError(ClusterError):
    """A command for the device failed. The message contains the command and its error output."""


class WireGuardDevice(NamedTuple):
    """The state of a device: addresses, MTU in bytes, and, if the device answers, its public key and UDP port."""

    up: bool
    addresses: tuple[str, ...]
    mtu: int
    public_key: str = ""
    port: int = 0


class DeviceStep(NamedTuple):
    """A change, with its arguments for ``wg set``; with ``restart`` the unit recreates the device instead."""

    change: Change
    wg_args: tuple[str, ...] = ()
    restart: bool = False


def read_device() -> WireGuardDevice | None:
    """Return the device of this host; ``None`` if it does not exist."""
    link = next(iter(show("ip", "-j", "addr", "show", "dev", DEVICE)), None)
    if link is None:
        return None
    device = WireGuardDevice("UP" in link["flags"], tuple(entry["local"] for entry in link["addr_info"]), link["mtu"])
    try:
        return device._replace(public_key=_show("public-key"), port=int(_show("listen-port")))
    except WireGuardError:
        # wireguard-go has died, or is still starting.
        return device


def difference(device: WireGuardDevice | None, desired: Underlay) -> str:
    """Return the first difference of a device from the desired underlay; empty if there is none."""
    if device is None:
        return "missing"
    actual = (device.up, desired.address in device.addresses, device.public_key, device.port, device.mtu)
    expected = (True, True, desired.public_key, endpoint_port(desired), desired.mtu)
    names = ("down", "without its address", "without its key", f"at port {device.port}", f"at mtu {device.mtu}")
    return next((name for name, value, expected_value in zip(names, actual, expected) if value != expected_value), "")


def plan_device(desired: WireGuardConfig | None) -> list[DeviceStep]:
    """Return what must change for the device and its peers to be as desired; ``None`` desires no peers.

    WireGuard follows a peer that changes its endpoint, so only a missing endpoint is a difference.
    """
    device = read_device()
    if desired is None:
        return _plan_peers([]) if device and device.public_key else []
    reason = difference(device, desired.local)
    if not reason:
        return _plan_peers(desired.peers)
    phrase = f"{desired.local.address}, mtu {desired.local.mtu}"
    recreate = DeviceStep(Change(f"device {DEVICE}", reason if device else None, phrase), restart=True)
    return [recreate, *(_add(peer, None) for peer in desired.peers)]


def apply_device(steps: Iterable[DeviceStep]) -> None:
    """Apply all steps: a restart of the unit first, then all peers in one call. Raises :class:`WireGuardError`."""
    listed = list(steps)
    if any(step.restart for step in listed):
        _run("systemctl", "restart", UNIT)
    arguments = [word for step in listed for word in step.wg_args]
    if arguments:
        _run("wg", "set", DEVICE, *arguments)


def _plan_peers(desired: Iterable[Underlay]) -> list[DeviceStep]:
    """Return the changes of peers that are missing, wrong or in no plan, on a device that answers."""
    allowed, endpoints = _listing("allowed-ips"), _listing("endpoints")
    by_key = {peer.public_key: peer for peer in desired}
    removals = [
        DeviceStep(Change(_subject(key), addresses, None), ("peer", key, "remove"))
        for key, addresses in allowed.items()
        if key not in by_key
    ]
    additions = [
        _add(peer, allowed.get(key))
        for key, peer in by_key.items()
        if allowed.get(key) != f"{peer.address}/128" or endpoints.get(key, _NOTHING) == _NOTHING
    ]
    return removals + additions


def _add(peer: Underlay, before: str | None) -> DeviceStep:
    words = ("peer", peer.public_key, "endpoint", peer.endpoint, "allowed-ips", f"{peer.address}/128")
    return DeviceStep(Change(_subject(peer.public_key), before, f"{peer.address}/128 at {peer.endpoint}"), words)


def _subject(public_key: str) -> str:
    return f"peer {public_key} on {DEVICE}"


def _listing(field: str) -> dict[str, str]:
    """Return one field of each peer by its public key, as ``wg show`` lists it."""
    return dict(line.split("\t", 1) for line in _show(field).splitlines())


def _show(field: str) -> str:
    return _run("wg", "show", DEVICE, field).strip()


def _run(*command: str) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        missing = f"{error.filename} is not installed on this host: run backendai.cluster.provision_agents on it."
        raise WireGuardError(missing) from error
    if result.returncode:
        raise WireGuardError(f"{' '.join(command)}: {one_line(result.stderr)}")
    return result.stdout
