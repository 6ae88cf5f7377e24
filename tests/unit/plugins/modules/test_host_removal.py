"""A host is given back with what its engine has at that time."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.removal import EngineContents
from ansible_collections.backendai.cluster.plugins.modules import host_removal
from tests.unit.module_runs import result_of


class Engine:
    """An engine with a container of others."""

    def info(self) -> dict[str, Any]:
        return {"DockerRootDir": "/data"}

    def containers(self, **_query: Any) -> list[dict[str, Any]]:
        return [{"Id": "1", "Names": ["/web"], "Labels": {}, "State": "running"}]

    def volumes(self) -> dict[str, Any]:
        return {"Volumes": None}


@pytest.mark.parametrize("role", ["agent", "gateway", "manager"])
@pytest.mark.parametrize(("engine", "contents"), [(Engine(), EngineContents("/data", ["container web"])), (None, None)])
def test_the_engine_is_asked_whichever_role_is_the_last(
    role: str,
    engine: Engine | None,
    contents: EngineContents | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []
    seen: list[EngineContents | None] = []

    def connect(address: str) -> Engine | None:
        asked.append(address)
        return engine

    monkeypatch.setattr(host_removal, "connect_unless_removed", connect)
    monkeypatch.setattr(host_removal.Removal, "run", lambda removal: seen.append(removal._look()))
    result = result_of("host_removal", {"role": role, "docker_host": "unix:///x"}, capsys)
    assert (result["kept"], asked, seen) == ([], ["unix:///x"], [contents])
