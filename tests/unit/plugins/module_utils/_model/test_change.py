"""Tests for changes and their diffs."""

from __future__ import annotations

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change, as_diff


@pytest.mark.parametrize(
    ("changes", "before", "after"),
    [
        ([], "", ""),
        ([Change("link a", None, "mtu 1450")], "", "link a: mtu 1450\n"),
        ([Change("link a", "mtu 1500", None)], "link a: mtu 1500\n", ""),
        ([Change("link a", "mtu 1500", "mtu 1450")], "link a: mtu 1500\n", "link a: mtu 1450\n"),
        (
            [Change("a", None, "new"), Change("b", "old", None), Change("c", "", "x")],
            "b: old\nc: \n",
            "a: new\nc: x\n",
        ),
    ],
    ids=["nothing", "made", "removed", "changed", "several"],
)
def test_diff_has_a_line_for_each_subject_on_each_side(changes: list[Change], before: str, after: str) -> None:
    assert as_diff(iter(changes)) == {"before": before, "after": after}
