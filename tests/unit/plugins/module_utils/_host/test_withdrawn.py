"""What no request may claim on an agent any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host import withdrawn


def test_what_is_withdrawn_is_remembered_for_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uptime = [100.0]
    monkeypatch.setattr(withdrawn, "FOLDER", tmp_path / "withdrawn")
    monkeypatch.setattr(withdrawn, "read_uptime", lambda: uptime[0])
    assert not withdrawn.is_withdrawn("first")
    withdrawn.withdraw("first")
    uptime[0] += 3500
    withdrawn.withdraw("second")
    assert [withdrawn.is_withdrawn(key) for key in ("first", "second", "third")] == [True, True, False]
    uptime[0] += 200
    assert [withdrawn.is_withdrawn(key) for key in ("first", "second")] == [False, True]
    withdrawn.withdraw("third")
    assert [withdrawn.is_withdrawn(key) for key in ("first", "second", "third")] == [False, True, True]
