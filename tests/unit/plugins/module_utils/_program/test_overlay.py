"""The overlay phase: a failure of one session stops no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.module_utils._program import overlay
from ansible_collections.backendai.cluster.plugins.module_utils._session.claim_guard import ClaimLostError
from tests.unit.builders import SESSION_ID, plan
from tests.unit.phases import NOWHERE, failure_of, result_of

OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
MADE = plan().to_dict()


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    """Return a request for the overlays of two sessions."""
    sessions = [{"plan": MADE, "nonce": "n-1"}, {"plan": {**MADE, "id": OTHER_ID, "name": "other"}, "nonce": "n-2"}]
    return {"docker_host": NOWHERE, "state_path": str(tmp_path), "sessions": sessions}


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
def test_each_overlay_is_created_with_its_own_nonce(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check_mode: bool
) -> None:
    calls: list[Any] = []

    def make(client: str, store: Store, of: SessionPlan, nonce: str, *, check_mode: bool) -> list[Change]:
        calls.append((client, store.firewall_file.parent, of.id, nonce, check_mode))
        return [Change(f"network of {of.name}", None, "made")] if of.name == "other" else []

    monkeypatch.setattr(overlay, "connect", lambda address: f"client of {address}")
    monkeypatch.setattr(overlay, "make_overlay", make)
    assert result_of("overlay", options, check_mode=check_mode) == {
        "changed": True,
        "diff": {"before": "", "after": "network of other: made\n"},
        "sessions": {SESSION_ID: {}, OTHER_ID: {}},
    }
    client = f"client of {NOWHERE}"
    assert calls == [
        (client, tmp_path, SESSION_ID, "n-1", check_mode),
        (client, tmp_path, OTHER_ID, "n-2", check_mode),
    ]


def test_failed_overlay_stops_no_other(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def make(_client: None, _store: Store, of: SessionPlan, _nonce: str, *, check_mode: bool) -> list[Change]:
        assert not check_mode
        if of.id == SESSION_ID:
            raise ClaimLostError("this one gives way")
        return [Change("network", None, "made")]

    monkeypatch.setattr(overlay, "connect", lambda _address: None)
    monkeypatch.setattr(overlay, "make_overlay", make)
    result = result_of("overlay", options)
    assert (result["changed"], result["sessions"]) == (
        True,
        {SESSION_ID: {"failed": "this one gives way."}, OTHER_ID: {}},
    )


@pytest.mark.parametrize("check_mode", [False, True], ids=["run", "check mode"])
def test_stopped_engine_fails_with_one_sentence(options: dict[str, Any], tmp_path: Path, check_mode: bool) -> None:
    sentence = failure_of("overlay", options, check_mode=check_mode)
    assert sentence.startswith(f"the Docker engine at {NOWHERE} does not answer the Docker SDK for Python ")
    assert list(tmp_path.iterdir()) == []
