"""The result of agent_underlay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.network import Underlay
from ansible_collections.backendai.cluster.plugins.module_utils._wireguard import key
from tests.unit.module_runs import result_of

KEY = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the options for a provisioned agent that has one interface and a key."""
    monkeypatch.setattr(key, "find_underlay", lambda _address: Underlay("192.0.2.1", "eth0", 1500))
    (tmp_path / "lock").touch()
    (tmp_path / "wireguard").mkdir()
    (tmp_path / "wireguard" / "public").write_text(KEY)
    return {"state_path": str(tmp_path)}


def test_desired_device_is_returned(state: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of("agent_underlay", {**state, "encryption": "wireguard"}, capsys)
    assert (result["changed"], result["diff"]) == (False, {"before": "", "after": ""})
    assert result["underlay"] == {"address": "fd62:6169:0:72cd:6e84:22c4:7fb:6d09", "mtu": 1440}


@pytest.mark.parametrize("check_mode", [True, False], ids=["check mode", "run"])
def test_key_is_removed_without_encryption(
    state: dict[str, Any], capsys: pytest.CaptureFixture[str], check_mode: bool
) -> None:
    result = result_of("agent_underlay", state, capsys, check_mode=check_mode)
    assert (result["changed"], result["underlay"]) == (True, None)
    assert result["diff"] == {"before": "wireguard key: present\n", "after": ""}
    assert Path(state["state_path"], "wireguard").exists() == check_mode


def test_unknown_encryption_is_rejected(state: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of("agent_underlay", {**state, "encryption": "ipsec"}, capsys)
    assert result["failed"] is True
    assert "value of encryption must be one of: , wireguard, got: ipsec" in result["msg"]


def test_unprovisioned_host_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of("agent_underlay", {"state_path": str(tmp_path / "nowhere")}, capsys)
    assert result["failed"] is True
    assert result["msg"].endswith("run backendai.cluster.provision_agents on this host.")
