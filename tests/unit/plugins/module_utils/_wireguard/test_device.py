"""The WireGuard device of an agent and its peers, with faked commands."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._wireguard import device
from ansible_collections.backendai.cluster.plugins.module_utils._wireguard.device import (
    DeviceStep,
    WireGuardDevice,
    WireGuardError,
    apply_device,
    difference,
    plan_device,
    read_device,
)
from ansible_collections.backendai.cluster.plugins.module_utils._wireguard.mesh import WireGuardConfig
from tests.unit.builders import encrypted_underlay

OWN, TWO, THREE = map(encrypted_underlay, (1, 2, 3))
KEY1, KEY2, KEY3 = (underlay.public_key for underlay in (OWN, TWO, THREE))
MESH = WireGuardConfig(OWN, (TWO, THREE))
LINK = {"ifname": "baiwg0", "flags": ["NOARP", "UP"], "mtu": 1440, "addr_info": [{"local": OWN.address}]}
DEVICE = WireGuardDevice(True, (OWN.address,), 1440, KEY1, 51820)
ADD_TWO = ("peer", KEY2, "endpoint", "192.0.2.2:51820", "allowed-ips", f"{TWO.address}/128")
ADD_THREE = ("peer", KEY3, "endpoint", "192.0.2.3:51820", "allowed-ips", f"{THREE.address}/128")


class Host:
    """A host with a faked ``wg``: ``said`` has the output of each query, all others fail."""

    def __init__(self) -> None:
        self.link: dict[str, Any] | None = LINK
        self.said = {
            "public-key": f"{KEY1}\n",
            "listen-port": "51820\n",
            "allowed-ips": f"{KEY2}\t{TWO.address}/128\n{KEY3}\t{THREE.address}/128\n",
            "endpoints": f"{KEY2}\t192.0.2.2:51820\n{KEY3}\t192.0.2.3:51820\n",
        }
        self.ran: list[Sequence[str]] = []

    def show(self, *_command: str) -> list[dict[str, Any]]:
        return [self.link] if self.link else []

    def run(self, command: Sequence[str], **_options: Any) -> subprocess.CompletedProcess[str]:
        self.ran.append(command)
        if command[:3] != ("wg", "show", "baiwg0"):
            return subprocess.CompletedProcess(command, 0, "", "")
        answer = self.said.get(command[3])
        error = "Unable to access interface:\nProtocol not supported\n"
        return subprocess.CompletedProcess(command, 0 if answer is not None else 1, answer or "", error)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    """Return a host with the desired device and peers."""
    host = Host()
    monkeypatch.setattr(device, "show", host.show)
    monkeypatch.setattr(device.subprocess, "run", host.run)
    return host


def test_a_device_is_read_without_its_private_key(host: Host) -> None:
    assert read_device() == DEVICE
    assert {command[3] for command in host.ran} == {"public-key", "listen-port"}


def test_missing_device_is_none(host: Host) -> None:
    host.link = None
    assert read_device() is None


def test_a_device_that_does_not_answer_has_no_key(host: Host) -> None:
    host.said.clear()
    assert read_device() == WireGuardDevice(True, (OWN.address,), 1440)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (DEVICE, ""),
        (None, "missing"),
        (DEVICE._replace(up=False), "down"),
        (DEVICE._replace(addresses=("fd62:6169::9",)), "without its address"),
        (DEVICE._replace(public_key="KEY9"), "without its key"),
        (DEVICE._replace(port=51821), "at port 51821"),
        (DEVICE._replace(mtu=1420), "at mtu 1420"),
    ],
)
def test_first_difference_is_named(device: WireGuardDevice | None, expected: str) -> None:
    assert difference(device, OWN) == expected


@pytest.mark.usefixtures("host")
def test_correct_mesh_is_not_changed() -> None:
    assert plan_device(MESH) == []


def test_moved_peer_is_not_changed(host: Host) -> None:
    host.said["endpoints"] = f"{KEY2}\t198.51.100.7:4711\n{KEY3}\t192.0.2.3:51820\n"
    assert plan_device(MESH) == []


@pytest.mark.parametrize(
    ("listing_name", "listing", "before"),
    [
        ("allowed-ips", f"{KEY3}\t{THREE.address}/128\n", None),
        ("allowed-ips", f"{KEY2}\t(none)\n{KEY3}\t{THREE.address}/128\n", "(none)"),
        (
            "allowed-ips",
            f"{KEY2}\t{TWO.address}/128 fd62:6169::9/128\n{KEY3}\t{THREE.address}/128\n",
            f"{TWO.address}/128 fd62:6169::9/128",
        ),
        ("endpoints", f"{KEY2}\t(none)\n{KEY3}\t192.0.2.3:51820\n", f"{TWO.address}/128"),
    ],
    ids=["missing", "no address", "too many addresses", "no endpoint"],
)
def test_missing_or_wrong_peer_is_set(host: Host, listing_name: str, listing: str, before: str) -> None:
    host.said[listing_name] = listing
    change = Change(f"peer {KEY2} on baiwg0", before, f"{TWO.address}/128 at 192.0.2.2:51820")
    assert plan_device(MESH) == [DeviceStep(change, ADD_TWO)]


@pytest.mark.usefixtures("host")
def test_peer_in_no_plan_is_removed() -> None:
    removal = DeviceStep(Change(f"peer {KEY3} on baiwg0", f"{THREE.address}/128", None), ("peer", KEY3, "remove"))
    assert plan_device(WireGuardConfig(OWN, (TWO,))) == [removal]


@pytest.mark.usefixtures("host")
def test_without_a_mesh_all_peers_are_removed() -> None:
    assert [step.wg_args for step in plan_device(None)] == [("peer", KEY2, "remove"), ("peer", KEY3, "remove")]


@pytest.mark.parametrize("link", [None, LINK], ids=["missing", "does not answer"])
def test_without_a_mesh_a_missing_device_is_not_repaired(host: Host, link: dict[str, Any] | None) -> None:
    host.link = link
    host.said.clear()
    assert plan_device(None) == []


@pytest.mark.parametrize(
    ("link", "before"), [(None, None), ({**LINK, "mtu": 1280}, "at mtu 1280")], ids=["missing", "wrong"]
)
def test_wrong_device_is_recreated_with_all_peers(host: Host, link: dict[str, Any] | None, before: str | None) -> None:
    host.link = link
    anew, *rest = plan_device(MESH)
    assert anew == DeviceStep(Change("device baiwg0", before, f"{OWN.address}, mtu 1440"), restart=True)
    assert [step.wg_args for step in rest] == [ADD_TWO, ADD_THREE]


def test_the_unit_is_restarted_first_and_all_peers_are_set_in_one_call(host: Host) -> None:
    host.link = None
    apply_device(plan_device(MESH))
    assert host.ran == [
        ("systemctl", "restart", "backendai-wireguard.service"),
        ("wg", "set", "baiwg0", *ADD_TWO, *ADD_THREE),
    ]


def test_nothing_to_change_runs_nothing(host: Host) -> None:
    apply_device([])
    assert host.ran == []


def test_failed_command_is_an_error_with_its_output(host: Host) -> None:
    del host.said["endpoints"]
    message = r"^wg show baiwg0 endpoints: Unable to access interface: Protocol not supported$"
    with pytest.raises(WireGuardError, match=message):
        plan_device(MESH)


def test_missing_tools_are_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(WireGuardError, match=r"^wg is not installed on this host: run backendai\.cluster\.provision"):
        apply_device([DeviceStep(Change(f"peer {KEY2} on baiwg0", None, "present"), ADD_TWO)])
