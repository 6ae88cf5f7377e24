"""What the module says of an agent beside its facts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.backendai.cluster.plugins.modules import agent_info
from tests.unit.builders import agent_facts
from tests.unit.plugins.modules.test_failures import result_of


def test_what_a_driver_does_not_tell_is_a_fact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = agent_facts("agent1", warnings=["nvidia-smi fails (no driver), so this agent offers no cuda.device"])
    monkeypatch.setattr(agent_info, "connect", lambda _address: None)
    monkeypatch.setattr(agent_info, "survey", lambda *_reading: facts)
    result = result_of("agent_info", {"state_path": str(tmp_path)}, capsys)
    assert (result["agent"], result["unfit"]) == (facts.to_dict(), None)


def test_an_agent_that_declares_what_is_not_there_is_unfit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = "agent_slots: /dev/nope of lab.device is not a device node here"

    def survey(*_reading: object) -> None:
        raise ValueError(sentence)

    monkeypatch.setattr(agent_info, "connect", lambda _address: None)
    monkeypatch.setattr(agent_info, "survey", survey)
    result = result_of("agent_info", {"state_path": str(tmp_path)}, capsys)
    assert (result.get("failed", False), result["agent"], result["unfit"]) == (False, None, sentence)


def test_every_fact_is_documented_and_nothing_else_is() -> None:
    documented = yaml.safe_load(agent_info.RETURN)["agent"]["contains"]
    assert list(documented) == list(agent_facts("agent1").to_dict())
