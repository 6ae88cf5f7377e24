"""Tests for the label filter of managed objects."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels as known
from ansible_collections.backendai.cluster.plugins.module_utils._docker.containers import find_labelled
from ansible_collections.backendai.cluster.plugins.module_utils._docker.labels import label_filter
from tests.unit.fake_docker import FakeDocker


@pytest.mark.parametrize(
    ("session_id", "labels"),
    [
        (None, ["ai.backend.owner=backendai.cluster", "ai.backend.session-id"]),
        ("5f0c", ["ai.backend.owner=backendai.cluster", "ai.backend.session-id=5f0c"]),
    ],
    ids=["all sessions", "one session"],
)
def test_label_filter_requires_the_owner_and_a_session(session_id: str | None, labels: list[str]) -> None:
    assert label_filter(session_id) == {"label": labels}


def test_a_container_that_shows_an_image_is_of_no_session_whatever_labels_the_image_has() -> None:
    engine: Any = FakeDocker()
    image = {known.OWNER: known.OWNER_VALUE, known.SESSION_ID: "5f0c", known.HOSTNAME: "main1"}
    # Those of the container replace those of the image.
    engine.create_container("sha256:1", "backendai-look-1", labels={**image, known.OWNER: known.LOOK_VALUE})
    assert find_labelled(engine) == find_labelled(engine, "5f0c") == []
