"""The host capabilities that containers get."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._session import host_capabilities
from ansible_collections.backendai.cluster.plugins.module_utils._session.host_capabilities import (
    HostCapabilities,
    read_host,
)


def test_host_capabilities_have_limits_gpus_infiniband_nodes_and_the_log_driver(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.cdi_folders = ["/etc/cdi"]
    engine.log_driver, engine.server_version = "journald", "25.0.5"
    monkeypatch.setattr(host_capabilities, "read_limits", lambda: {"nofile": 20000})
    monkeypatch.setattr(host_capabilities, "named_gpus", lambda folders, newest: frozenset({*folders, str(newest)}))
    monkeypatch.setattr(host_capabilities, "infiniband_nodes", lambda: ["/dev/infiniband/uverbs0"])
    monkeypatch.setattr(host_capabilities, "gpu_nodes", lambda: {"GPU-aaaa": ("/dev/nvidia0",)})
    assert read_host(engine) == HostCapabilities(
        {"nofile": 20000},
        frozenset({"/etc/cdi", "(0, 6)"}),
        ("/dev/infiniband/uverbs0",),
        "journald",
        {"GPU-aaaa": ("/dev/nvidia0",)},
    )
