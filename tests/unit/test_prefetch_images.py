"""After a prefetch, the agents that do not have all images are named."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.builders import REPOSITORY

PLAY = yaml.safe_load((REPOSITORY / "playbooks/prefetch_images.yml").read_text())[-1]
UNREACHABLE = {"unreachable": True, "msg": "Failed to connect", "changed": False}


@pytest.mark.parametrize(
    ("result", "lacking"),
    [
        ({"missing": []}, []),
        ({"missing": ["lab/x:1"], "failed": True}, ["a2"]),
        (UNREACHABLE, ["a2"]),
        # Left out by --limit.
        (None, []),
    ],
)
def test_an_agent_without_an_image_or_a_result_is_named(result: dict[str, Any] | None, lacking: list[str]) -> None:
    results: dict[str, dict[str, Any] | None] = {"a1": {"missing": []}, "a2": result}
    hosts = {name: {} if value is None else {"__agent_images": value} for name, value in results.items()}
    variables = {name: trust_as_template(text) for name, text in PLAY["tasks"][0]["vars"].items()}
    templar = Templar(DataLoader(), {"__agent_selection": ["a1", "a2"], "hostvars": hosts, **variables})
    assert templar.template(variables["__agent_lacking"]) == lacking
