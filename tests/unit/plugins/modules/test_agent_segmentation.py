"""The module agent_segmentation: findings become warnings, or refusals."""

from __future__ import annotations

import importlib

import pytest
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.audit import NetworkExposure, Zones
from ansible_collections.backendai.cluster.plugins.module_utils._network.iproute import NetworkError
from tests.unit.module_runs import result_of

NAME = "ansible_collections.backendai.cluster.plugins.modules.agent_segmentation"
USERS = {"user1": "192.0.2.31", "user2": "users.example", "192.0.2.32": ""}


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Put the agent into a network of users; return the requested underlay addresses."""
    observed: list[str] = []

    def look(address: str) -> NetworkExposure:
        observed.append(address)
        return NetworkExposure(("192.0.2.1",), ("192.0.2.0/24",), (), (), True)

    monkeypatch.setattr(importlib.import_module(NAME), "read_exposure", look)
    return observed


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the warnings of a module, which are not in its result in this process."""
    printed: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _module, sentence: printed.append(sentence))
    return printed


@pytest.mark.parametrize("check_mode", [True, False], ids=["check mode", "run"])
def test_each_finding_is_a_warning(
    requests: list[str], warned: list[str], capsys: pytest.CaptureFixture[str], check_mode: bool
) -> None:
    options = {"underlay_address": "192.0.2.1", "users": USERS, "managers": {"manager1": "192.0.2.2"}}
    result = result_of("agent_segmentation", options, capsys, check_mode=check_mode)
    (finding,) = result["findings"]
    assert finding["kind"] == "shared_network"
    assert finding["message"].startswith(
        "managers manager1 (192.0.2.2) and users user1 (192.0.2.31), 192.0.2.32 (192.0.2.32) share the agents' own"
    )
    assert warned == [f"{finding['message']}."]
    assert (result["changed"], requests) == (False, ["192.0.2.1"])


def test_agent_in_its_own_network_has_no_warnings(
    requests: list[str], warned: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    result = result_of("agent_segmentation", {}, capsys)
    assert (result["findings"], warned, requests) == ([], [], [""])


def test_failed_netlink_request_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_address: str) -> NetworkExposure:
        raise NetworkError("ip -j addr show: Operation not permitted")

    monkeypatch.setattr(importlib.import_module(NAME), "read_exposure", fail)
    result = result_of("agent_segmentation", {}, capsys)
    assert (result["failed"], result["msg"]) == (True, "ip -j addr show: Operation not permitted.")


ZONES = Zones(
    management=("10.1.0.0/16",),
    compute=("10.2.0.0/16",),
    ssh_address="10.2.0.7",
    underlay_address="10.2.0.7",
    interfaces={"eth0": ("10.2.0.7", "192.88.99.7")},
)
BEFORE = {"phase": "before", "management_networks": ["10.1.0.0/16"], "compute_networks": ["10.2.0.0/16"]}
SSH = (
    "SSH reaches it at 10.2.0.7, which is not in agent_management_networks (10.1.0.0/16): set ansible_host to its"
    " address there."
)
PUBLIC = (
    "it has the public address 192.88.99.7, reachable from everywhere: put agents on a private network that only"
    " managers and gateways reach from outside."
)


def in_zones(monkeypatch: pytest.MonkeyPatch, zones: Zones) -> list[tuple[object, ...]]:
    """Put the agent into these zones; return what they are read with."""
    asked: list[tuple[object, ...]] = []

    def look(*declared: object) -> Zones:
        asked.append(declared)
        return zones

    monkeypatch.setattr(importlib.import_module(NAME), "read_zones", look)
    return asked


@pytest.mark.parametrize("check_mode", [True, False], ids=["check mode", "run"])
def test_zones_that_are_not_apart_are_refused_with_a_sentence_for_each_finding(
    monkeypatch: pytest.MonkeyPatch, warned: list[str], capsys: pytest.CaptureFixture[str], check_mode: bool
) -> None:
    asked = in_zones(monkeypatch, ZONES)
    options = {**BEFORE, "underlay_address": "10.2.0.7"}
    result = result_of("agent_segmentation", options, capsys, check_mode=check_mode)
    assert (result["failed"], result["msg"]) == (True, f"{SSH} {PUBLIC}")
    assert (warned, asked) == ([], [(["10.1.0.0/16"], ["10.2.0.0/16"], "10.2.0.7")])


def test_zones_that_are_not_apart_are_warnings_when_told_to(
    monkeypatch: pytest.MonkeyPatch, warned: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    in_zones(monkeypatch, ZONES)
    result = result_of("agent_segmentation", {**BEFORE, "separation": "warn"}, capsys)
    assert [finding["kind"] for finding in result["findings"]] == ["ssh_address", "public_address"]
    assert (result["changed"], warned) == (False, [SSH, PUBLIC])


def test_an_agent_without_declared_zones_is_not_refused_for_anything(
    monkeypatch: pytest.MonkeyPatch, warned: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    in_zones(monkeypatch, ZONES._replace(management=(), compute=()))
    result = result_of("agent_segmentation", {"phase": "before"}, capsys)
    assert (result["findings"], warned) == ([], [])
