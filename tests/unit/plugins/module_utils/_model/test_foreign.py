"""What containers of others take from an agent."""

from __future__ import annotations

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.foreign import ForeignContainer, foreign_share
from tests.unit.builders import GIB


@pytest.mark.parametrize(
    ("containers", "share"),
    [
        ([], {}),
        ([ForeignContainer("idle")], {"cpu": 0, "mem": 0}),
        ([ForeignContainer("web", used_cores=0.01, used_memory=5)], {"cpu": 1, "mem": GIB}),
        ([ForeignContainer("db", 2, 3 << 20, used_cores=9, used_memory=9 * GIB)], {"cpu": 2, "mem": 3 << 20}),
        ([ForeignContainer(str(number), 0.1, 5, 9, 9) for number in range(30)], {"cpu": 3, "mem": 150}),
        (
            [ForeignContainer("db", cores=1.5, used_memory=GIB), ForeignContainer("web", memory=7, used_cores=0.25)],
            {"cpu": 2, "mem": GIB + 7},
        ),
        (
            [ForeignContainer("one", used_memory=GIB // 2), ForeignContainer("two", used_memory=GIB // 2 + 1)],
            {"cpu": 0, "mem": 2 * GIB},
        ),
    ],
    ids=["none", "idle", "used", "limits", "tenths", "a limit of one kind", "sums are rounded once"],
)
def test_limits_count_in_full_and_use_in_whole_amounts(
    containers: list[ForeignContainer], share: dict[str, int]
) -> None:
    assert foreign_share(containers) == share
