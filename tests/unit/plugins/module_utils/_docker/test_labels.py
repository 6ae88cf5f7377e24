"""Tests for the label filter of managed objects."""

from __future__ import annotations

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.labels import label_filter


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
