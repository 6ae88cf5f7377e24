"""Fixtures of an agent without a host."""

from __future__ import annotations

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._session import admission
from tests.unit.agent import engine, kernel, store

__all__ = ("engine", "kernel", "store")


@pytest.fixture(autouse=True)
def nobody_waits_at_a_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine of these tests starts no process."""
    monkeypatch.setattr(admission, "runs", lambda _pid: False)
