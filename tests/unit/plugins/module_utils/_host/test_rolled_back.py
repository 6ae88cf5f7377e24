"""The runs that have rolled back on an agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import rolled_back


def test_a_rollback_is_remembered_for_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uptime = [100.0]
    monkeypatch.setattr(rolled_back, "FOLDER", tmp_path / "rolled-back")
    monkeypatch.setattr(rolled_back, "read_uptime", lambda: uptime[0])
    assert not rolled_back.has_rolled_back("first")
    rolled_back.note_rollback("first")
    uptime[0] += 3500
    rolled_back.note_rollback("second")
    assert [rolled_back.has_rolled_back(nonce) for nonce in ("first", "second", "third")] == [True, True, False]
    uptime[0] += 200
    rolled_back.note_rollback("third")
    assert [rolled_back.has_rolled_back(nonce) for nonce in ("first", "second", "third")] == [False, True, True]
