"""The filter planner."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.backendai.cluster.plugins.filter.planner import FilterModule, planner


@pytest.mark.parametrize(
    "limit", ["", "localhost", "localhost,agent1", "agent1:localhost", "agents,localhost", "agent1, localhost"]
)
def test_limit_with_localhost_is_accepted(limit: str) -> None:
    assert planner(limit) == "localhost"


@pytest.mark.parametrize("limit", ["agent1", "agents:!localhost", "all", "localhost2", "my-localhost,agent1", "@retry"])
def test_limit_without_localhost_is_rejected(limit: str) -> None:
    with pytest.raises(AnsibleFilterError) as refused:
        planner(limit)
    assert str(refused.value) == (
        f"--limit {limit!r} excludes localhost, which plans sessions: use --limit 'localhost,{limit}'."
    )


def test_filter_is_registered_by_name() -> None:
    assert FilterModule().filters() == {"planner": planner}
