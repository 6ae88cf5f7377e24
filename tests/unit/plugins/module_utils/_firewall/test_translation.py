"""The address translation in a container's network namespace."""

from __future__ import annotations

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.table import Table
from ansible_collections.backendai.cluster.plugins.module_utils._firewall.translation import plan_translation
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change

CONTAINER = ("main1", 42, "eth0", "10.128.3.2", "172.18.0.0/16")


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> dict[int | None, str]:
    """Replace nft; the result is the table of each container by process."""
    tables: dict[int | None, str] = {}
    monkeypatch.setattr(Table, "read", lambda table: tables.get(table.pid, ""))
    return tables


def test_missing_translation_is_one_change_in_the_container(kernel: dict[int | None, str]) -> None:
    (step,) = plan_translation(*CONTAINER, fresh=False)
    assert step.change == Change("translation of main1", None, "to 10.128.3.2")
    assert (step.pid, step.ip, step.bridge) == (42, (), ())
    assert 'oifname "eth0" ip saddr 10.128.3.2 masquerade' in step.nft
    assert "ip saddr != 172.18.0.0/16 fib daddr type local meta l4proto udp dnat to 10.128.3.2" in step.nft
    kernel[42] = step.nft.split("\n", 2)[2]
    assert plan_translation(*CONTAINER, fresh=False) == []


@pytest.mark.parametrize(("old", "new"), [("10.128.3.2", "10.128.3.3"), ("172.18.0.0", "172.19.0.0")])
def test_translation_of_another_address_is_replaced(kernel: dict[int | None, str], old: str, new: str) -> None:
    (step,) = plan_translation(*CONTAINER, fresh=False)
    kernel[42] = step.nft.split("\n", 2)[2].replace(old, new)
    (repair,) = plan_translation(*CONTAINER, fresh=False)
    assert repair.change == Change("translation of main1", "differs", "to 10.128.3.2")
    assert repair.nft == step.nft


def test_fresh_namespace_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Table, "read")
    (step,) = plan_translation(*CONTAINER, fresh=True)
    assert step.change == Change("translation of main1", None, "to 10.128.3.2")
    assert "masquerade" in step.nft
