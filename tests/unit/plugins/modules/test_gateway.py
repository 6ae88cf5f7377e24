"""The modules of a gateway: options, results and error messages."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.certificate import make_self_signed
from tests.unit.gateway import provisioned
from tests.unit.module_runs import result_of

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return provisioned(tmp_path / "state")


def test_host_that_is_no_gateway_fails(tmp_path: Path, capsys: Captured) -> None:
    result = result_of("gateway_key", {"state_path": str(tmp_path / "nowhere")}, capsys)
    assert result["failed"] is True
    assert result["msg"].endswith("run backendai.cluster.provision_gateways on this host.")


def test_key_is_created_once_and_its_public_key_returned(folder: Path, capsys: Captured) -> None:
    args = {"state_path": str(folder)}
    would = result_of("gateway_key", args, capsys, check_mode=True)
    assert (would["changed"], would["public_key"], (folder / "token.key").exists()) == (True, None, False)
    created = result_of("gateway_key", args, capsys)
    again = result_of("gateway_key", args, capsys)
    assert (created["changed"], again["changed"]) == (True, False)
    assert created["diff"] == {"before": "", "after": f"key {folder}/token.key: created\n"}
    assert created["public_key"] == again["public_key"]
    assert created["public_key"].startswith("-----BEGIN PUBLIC KEY-----\n")


def test_certificate_is_created_or_given(tmp_path: Path, capsys: Captured) -> None:
    args = {"path": str(tmp_path / "certificate.pem"), "names": ["door.example.org"]}
    would = result_of("gateway_certificate", args, capsys, check_mode=True)
    assert (would["changed"], would["certificate"]["fingerprint"]) == (True, None)
    created = result_of("gateway_certificate", args, capsys)
    assert (created["changed"], created["certificate"]["self_signed"]) == (True, True)
    assert result_of("gateway_certificate", args, capsys)["changed"] is False
    pem = make_self_signed(["given.example.org"], time.time())
    place = pem.index("-----BEGIN PRIVATE")
    brought = result_of("gateway_certificate", {**args, "certificate": pem[:place], "key": pem[place:]}, capsys)
    assert (brought["changed"], brought["certificate"]["names"]) == (True, ["given.example.org"])
    assert pem[place + 40 : place + 80] not in str(brought)
    assert brought["invocation"]["module_args"]["key"] == "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"


@pytest.mark.parametrize("missing", ["path", "names"])
def test_certificate_requires_path_and_names(missing: str, capsys: Captured) -> None:
    args = {name: value for name, value in {"path": "/x", "names": ["x"]}.items() if name != missing}
    sentence = f"state is present but all of the following are missing: {missing}"
    assert result_of("gateway_certificate", args, capsys)["msg"] == sentence
