"""A session that would fill a disk with its images is warned of."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts
from ansible_collections.backendai.cluster.plugins.module_utils._model.images import ImageDisk
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner import disk_room as module
from ansible_collections.backendai.cluster.plugins.plugin_utils._planner.disk_room import describe_tight_disks
from tests.unit.builders import IMAGE, agent_facts

GB = 10**9
OTHER = "other:1"


def warned(free: int, missing: list[str], **sizes: int) -> list[str]:
    """Return the warnings about agent1, if agent2 and agent3 have the images with these sizes."""
    facts = {"agent1": agent_facts("agent1", image_disk=ImageDisk("/data", free, GB, {}))}
    facts["agent2"] = agent_facts("agent2", image_disk=ImageDisk("/data", 0, GB, {IMAGE: 3 * GB, OTHER: GB, **sizes}))
    facts["agent3"] = agent_facts("agent3", image_disk=ImageDisk("/data", 0, GB, {IMAGE: 2 * GB}))
    facts["agent4"] = agent_facts("agent4")
    return describe_tight_disks([{"agent1": missing, "agent4": missing}], facts)


@pytest.mark.parametrize(
    ("free", "missing", "amount"),
    [
        (int(4.6 * GB), [IMAGE, OTHER], "the images (lab/python:1, other:1) take 4.0 GB, 4.6 GB are free"),
        (int(3.9 * GB), [IMAGE, "new:1"], "the images (lab/python:1, new:1) take at least 3.0 GB, 3.9 GB are free"),
        (int(0.9 * GB), ["new:1"], "the images (new:1) take an unknown amount, 900.0 MB are free"),
    ],
)
def test_agent_whose_disk_would_be_full_is_named_with_the_figures(free: int, missing: list[str], amount: str) -> None:
    remedy = "make room with backendai.cluster.prune_images, or choose other agents."
    (warning,) = warned(free, missing)
    assert warning == f"agent1: its disk may get full: {amount} in /data, and agent_disk_reserve is 1.0 GB; {remedy}"


@pytest.mark.parametrize(("free", "missing"), [(4 * GB, [IMAGE]), (GB, ["new:1"])])
def test_disk_with_room_is_not_warned_of(free: int, missing: list[str]) -> None:
    assert warned(free, missing) == []


def test_size_of_an_image_is_looked_up_once_for_all_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []

    def look_up(name: str, agents: Iterable[AgentFacts]) -> int:
        looked_up.append(name)
        return len([*agents])

    monkeypatch.setattr(module, "_size_elsewhere", look_up)
    names = [f"agent{number}" for number in range(1, 4)]
    facts = {name: agent_facts(name, image_disk=ImageDisk("/data", GB, GB, {})) for name in names}
    warnings = describe_tight_disks([{name: [IMAGE] for name in names[:2]}, {names[2]: [OTHER, IMAGE]}], facts)
    assert (looked_up, [warning.partition(":")[0] for warning in warnings]) == ([IMAGE, OTHER], names)
