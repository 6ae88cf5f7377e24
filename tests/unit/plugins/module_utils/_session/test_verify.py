"""Verification of an agent's part of a session."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._session import verify as verifying
from ansible_collections.backendai.cluster.plugins.module_utils._session.connectivity import Running
from ansible_collections.backendai.cluster.plugins.module_utils._session.verify import verify
from tests.unit.builders import held, own_labels, plan

MADE = plan({"agent1": 2, "agent2": 1})
OTHER_ID = "00000000-3c0e-4f5e-9d0a-0f3c1d2e4b6a"


def test_drift_and_pairs_are_plain_data(engine: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    session = held(MADE)
    store.save(session)
    for hostname, pid in (("main1", 101), ("sub1", 0)):
        bears = own_labels(hostname)
        state = {
            "State": "running" if pid else "created",
            "Pid": pid,
            "Names": [f"/backendai-train-llm-{hostname}"],
            "Id": hostname,
        }
        engine.made.append({"Labels": {**bears, labels.IMAGE_DIGEST: "sha256:1"}, **state})
    calls: list[Any] = []

    def check_pairs(_client: Any, *of: Any) -> list[dict[str, Any]]:
        calls.append(of)
        return [{"from": "main1"}]

    monkeypatch.setattr(verifying, "find_drift", lambda *_slice: [Change("link bax-1", None, "mtu 1450")])
    monkeypatch.setattr(verifying, "check_pairs", check_pairs)
    part = verify(engine, store, session, 3)
    assert calls == [(session, {"main1": Running("main1", 101)}, 3)]
    assert (part["plan"], part["committed"], part["expired"]) == (MADE.to_dict(), True, False)
    assert {name: state["status"] for name, state in part["containers"].items()} == {
        "main1": "running",
        "sub1": "created",
    }
    assert part["drift"] == [{"subject": "link bax-1", "actual": None, "expected": "mtu 1450"}]
    assert part["pairs"] == [{"from": "main1"}]
