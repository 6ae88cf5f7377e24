"""The documentation of agent_info."""

from __future__ import annotations

import yaml

from ansible_collections.backendai.cluster.plugins.modules import agent_info
from tests.unit.builders import agent_facts


def test_facts_match_their_documentation() -> None:
    documented = yaml.safe_load(agent_info.RETURN)["agent"]["contains"]
    assert list(documented) == list(agent_facts("agent1").to_dict())
