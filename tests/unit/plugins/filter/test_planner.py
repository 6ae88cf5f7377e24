"""The host that plans, and the limits that hide it."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.backendai.cluster.plugins.filter.planner import FilterModule, planner


@pytest.mark.parametrize(
    "limit", ["", "localhost", "localhost,agent1", "agent1:localhost", "agents,localhost", "agent1, localhost"]
)
def test_a_limit_with_localhost_in_it_hides_nothing(limit: str) -> None:
    assert planner(limit) == "localhost"


@pytest.mark.parametrize("limit", ["agent1", "agents:!localhost", "all", "localhost2", "my-localhost,agent1", "@retry"])
def test_a_limit_that_hides_localhost_is_refused_with_a_way_out(limit: str) -> None:
    with pytest.raises(AnsibleFilterError) as refused:
        planner(limit)
    assert str(refused.value) == (
        f"--limit {limit!r} excludes localhost, which plans sessions: use --limit 'localhost,{limit}'."
    )


def test_the_filter_is_offered_under_its_name() -> None:
    assert FilterModule().filters() == {"planner": planner}
