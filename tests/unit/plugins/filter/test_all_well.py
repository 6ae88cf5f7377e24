"""Whether a step of a start went well on all of its agents."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.filter.all_well import FilterModule, all_well

WELL: dict[str, Any] = {"changed": True, "failed": False}


@pytest.mark.parametrize(
    "results",
    [
        [],
        [WELL],
        [WELL, {"skipped": True, "changed": False}],
        [{**WELL, "refused": None}, {**WELL, "refused": "", "unreachable": False}],
    ],
    ids=["no agent", "one", "one had nothing to do", "none refused"],
)
def test_a_step_went_well_when_it_did_so_everywhere(results: list[dict[str, Any]]) -> None:
    assert all_well(iter(results)) is True


@pytest.mark.parametrize(
    "second",
    [{"failed": True, "msg": "no image"}, {"unreachable": True}, {**WELL, "refused": "no room"}, None, ""],
    ids=["failed", "unreachable", "refused", "missing", "undefined"],
)
def test_one_agent_on_which_it_did_not_is_enough(second: Any) -> None:
    assert all_well([WELL, second]) is False


def test_the_filter_is_offered_under_its_name() -> None:
    assert FilterModule().filters() == {"all_well": all_well}
