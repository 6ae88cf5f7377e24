"""Tests for the paths that containers mount."""

from __future__ import annotations

from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._docker.mounts import mounted_paths


class Engine:
    """An engine with containers that have these mounts."""

    def __init__(self, *mounts: list[dict[str, str]]) -> None:
        self.mounts = mounts

    def containers(self, **query: Any) -> list[dict[str, Any]]:
        assert query["all"], "a stopped container may start again"
        return [{"Mounts": mounted} for mounted in self.mounts]


def test_mounted_paths_cover_all_containers_except_tmpfs() -> None:
    client: Any = Engine([{"Source": "/a"}, {"Destination": "/run"}], [], [{"Source": "/b"}, {"Source": "/a"}])
    assert mounted_paths(client) == frozenset({"/a", "/b"})
