"""Whether a step went well on all agents."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.filter.all_well import FilterModule, all_well

GOOD: list[Any] = [{"changed": True, "failed": False}, {"skipped": True}, {"refused": None}]


def test_results_of_success_are_well() -> None:
    assert all_well(GOOD)
    assert all_well([])


@pytest.mark.parametrize(
    "bad",
    [{"failed": True, "msg": "no"}, {"unreachable": True}, {"refused": "no room"}, None, "undefined"],
    ids=["failed", "unreachable", "refused", "missing", "no result"],
)
def test_one_result_that_is_bad_is_enough(bad: Any) -> None:
    assert not all_well([*GOOD, bad])


def test_it_is_a_filter() -> None:
    assert FilterModule().filters() == {"all_well": all_well}
