"""Tests for the text of a pull's progress."""

from __future__ import annotations

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import Progress


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (Progress(), ""),
        (Progress(0, 0, 0, 31, more=True), ""),
        (Progress(1_200_000_000, 4_600_000_000, 12, 31), "1.2 of 4.6 GB, 12 of 31 layers"),
        (Progress(1_200_000_000, 4_600_000_000, 12, 31, more=True), "1.2 of at least 4.6 GB, 12 of 31 layers"),
        (Progress(40_000_000, 999_000_000, 0, 1), "40.0 of 999.0 MB, 0 of 1 layers"),
        (Progress(0, 2_000, 0, 2), "0.0 of 2.0 kB, 0 of 2 layers"),
        (Progress(10, 10, 1, 2), "0.0 of 0.0 kB, 1 of 2 layers"),
    ],
)
def test_progress_is_formatted_in_the_unit_of_the_total(progress: Progress, expected: str) -> None:
    assert progress.describe() == expected
