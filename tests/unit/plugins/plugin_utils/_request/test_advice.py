"""What is said about a request before it is carried out."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._request.advice import NO_FOLDER, advise
from tests.unit.builders import spec

FOLDER = {"source": "/mnt/data", "target": "/data"}
ALIKE = "Resources are of one container: 4 × (cpu 2, mem 8g) = cpu 8, mem 32g in all."
ROLES = (
    "Resources are of one container: 1 × (cpu 2, mem 4g) + 3 × (cpu 8, mem 4g, cuda.device 1) = cpu 26, mem 16g,"
    " cuda.device 3 in all."
)


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"mounts": [FOLDER]}, []),
        ({}, [NO_FOLDER]),
        ({"mounts": [{**FOLDER, "read_only": True}]}, [NO_FOLDER]),
        ({"cluster_size": 4, "resources": {"cpu": 2, "mem": "8g"}, "mounts": [FOLDER]}, [ALIKE]),
        (
            {
                "resources": {"cpu": 2, "mem": "4g"},
                "roles": {"main": {}, "worker": {"replicas": 3, "resources": {"cpu": 8, "cuda.device": 1}}},
            },
            [ROLES, NO_FOLDER],
        ),
    ],
)
def test_user_learns_what_a_session_takes_and_keeps(changes: dict[str, Any], advice: list[str]) -> None:
    assert advise(spec(**changes)) == advice
