"""Validating and renewing claims."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._session.claim_guard import (
    ClaimLostError,
    renew_claim,
    require_claim,
)
from tests.unit.builders import SESSION_ID, held, plan

MADE = plan({"agent1": 1})


@pytest.mark.parametrize(
    "state", [{"nonce": "nonce-1", "expires_at": 9e12}, {"nonce": "nonce-2"}], ids=["its own claim", "committed"]
)
def test_run_may_change_its_claims_and_committed_sessions(store: Store, state: dict[str, Any]) -> None:
    store.save(held(MADE, **state))
    assert require_claim(store, SESSION_ID, "nonce-1") == held(MADE, **state)


def test_claim_is_renewed_from_now(store: Store) -> None:
    store.save(held(MADE, expires_at=time.time() - 5))
    assert renew_claim(store, SESSION_ID, "nonce-1", 60) == store.session(SESSION_ID)
    session = store.session(SESSION_ID)
    assert session is not None
    assert session.expires_at is not None
    assert 59 < session.expires_at.seconds_left <= 60


@pytest.mark.parametrize("state", [{"expires_at": 9e12}, {}], ids=["a long claim", "committed"])
def test_renewal_never_shortens_a_claim(store: Store, state: dict[str, Any]) -> None:
    store.save(held(MADE, **state))
    assert renew_claim(store, SESSION_ID, "nonce-1", 60) == held(MADE, **state)
    assert store.session(SESSION_ID) == held(MADE, **state)


@pytest.mark.parametrize("exists", [True, False], ids=["taken over", "removed"])
def test_lost_claim_is_not_renewed(store: Store, exists: bool) -> None:
    if exists:
        store.save(held(MADE, nonce="nonce-2", expires_at=9e12))
    before = store.session(SESSION_ID)
    with pytest.raises(ClaimLostError):
        renew_claim(store, SESSION_ID, "nonce-1", 60)
    assert store.session(SESSION_ID) == before
