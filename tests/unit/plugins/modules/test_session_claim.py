"""What the module says of a claim that is granted, and of one that is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change
from ansible_collections.backendai.cluster.plugins.module_utils._model.ssh import PublicKeys
from ansible_collections.backendai.cluster.plugins.module_utils._session.claim import Claimed, ClaimRefused
from ansible_collections.backendai.cluster.plugins.modules import session_claim
from tests.unit.builders import SESSION_ID
from tests.unit.plugins.modules.test_failures import CLAIM, result_of


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the claims that are asked for; each is granted."""
    asked: list[Any] = []
    changes = [Change("claim train-llm on agent1", None, "1 containers")]

    def claim(_client: Any, _store: Any, _settings: Any, wanted: Any, *, dry: bool) -> Claimed:
        asked.append((wanted, dry))
        return Claimed(changes, {"main1": PublicKeys("USER", "HOST")})

    monkeypatch.setattr(session_claim, "connect", lambda _address: None)
    monkeypatch.setattr(session_claim, "claim", claim)
    return asked


def ended(tmp_path: Path, capsys: pytest.CaptureFixture[str], **options: Any) -> dict[str, Any]:
    result = result_of("session_claim", {**CLAIM, "state_path": str(tmp_path), **options}, capsys)
    return {key: result.get(key) for key in ("failed", "changed", "refused", "public_keys", "diff", "msg")}


@pytest.mark.usefixtures("wanted")
def test_a_claim_that_is_granted_gives_keys_and_no_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(tmp_path, capsys) == {
        "failed": None,
        "changed": True,
        "refused": None,
        "public_keys": {"main1": {"user": "USER", "host": "HOST"}},
        "diff": {"before": "", "after": "claim train-llm on agent1: 1 containers\n"},
        "msg": None,
    }


def test_a_claim_that_is_refused_says_why_and_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wanted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_claim: Any, **_options: bool) -> NoReturn:
        raise ClaimRefused("agent1 no longer has room for 1 container of cpu 1, mem 1g")

    monkeypatch.setattr(session_claim, "claim", refuse)
    assert ended(tmp_path, capsys) == {
        "failed": None,
        "changed": False,
        "refused": "agent1 no longer has room for 1 container of cpu 1, mem 1g",
        "public_keys": {},
        "diff": {"before": "", "after": ""},
        "msg": None,
    }
    assert wanted == []


@pytest.mark.usefixtures("wanted")
def test_any_other_error_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_claim: Any, **_options: bool) -> NoReturn:
        raise ValueError("agent_slots: /dev/nope of lab.device is not a device node here")

    monkeypatch.setattr(session_claim, "claim", fail)
    result = ended(tmp_path, capsys)
    assert (result["failed"], result["refused"]) == (True, None)
    assert result["msg"] == "agent_slots: /dev/nope of lab.device is not a device node here."


@pytest.mark.parametrize("clear", [[], [SESSION_ID]])
def test_what_is_to_be_cleared_is_passed_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wanted: list[Any], clear: list[str]
) -> None:
    ended(tmp_path, capsys, clear=clear, seconds=60)
    ((claim, dry),) = wanted
    assert (claim.clear, claim.seconds, claim.agent, claim.nonce, dry) == (clear, 60, "agent1", "n", False)
