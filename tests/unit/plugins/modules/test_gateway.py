"""The modules of a gateway: options, results and error messages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._gateway import haproxy, routing
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.certificate import make_self_signed
from ansible_collections.backendai.cluster.plugins.module_utils._program import gateway
from tests.unit.gateway import ONE, OTHER, ROUTE, TWO, Table, haproxy_of, provisioned
from tests.unit.module_runs import result_of
from tests.unit.plugins.module_utils._gateway.test_token import verify

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return provisioned(tmp_path / "state")


@pytest.fixture
def routed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A gateway with fake HAProxy and firewall table, and the routes of two sessions."""
    Table(partial(monkeypatch.setattr, routing))
    admin = haproxy_of(folder)
    arguments = {"routes": [OTHER, ROUTE], "ended": [], "vacated": [], "purge": False}
    monkeypatch.setattr(gateway, "Haproxy", partial(haproxy.Haproxy, str(folder / "socket")))
    gateway.routes({"state_path": str(folder), **arguments}, False)
    yield
    admin.close()


@pytest.mark.parametrize(
    ("module", "args"),
    [("gateway_token", {"state": "ready"}), ("gateway_token", {"name": "train-llm", "path": "x"})],
)
def test_host_that_is_no_gateway_fails(module: str, args: dict[str, Any], tmp_path: Path, capsys: Captured) -> None:
    result = result_of(module, {"state_path": str(tmp_path / "nowhere"), **args}, capsys)
    assert result["failed"] is True
    assert result["msg"].endswith("run backendai.cluster.provision_gateways on this host.")


def test_key_is_created_once_and_its_public_key_returned(folder: Path, capsys: Captured) -> None:
    args = {"state": "ready", "state_path": str(folder)}
    would = result_of("gateway_token", args, capsys, check_mode=True)
    assert (would["changed"], would["public_key"], (folder / "token.key").exists()) == (True, None, False)
    created = result_of("gateway_token", args, capsys)
    again = result_of("gateway_token", args, capsys)
    assert (created["changed"], again["changed"]) == (True, False)
    assert created["diff"] == {"before": "", "after": f"key {folder}/token.key: created\n"}
    assert created["public_key"] == again["public_key"]
    assert created["public_key"].startswith("-----BEGIN PUBLIC KEY-----\n")


@pytest.mark.usefixtures("routed")
def test_token_is_signed_except_in_check_mode(folder: Path, capsys: Captured) -> None:
    public = result_of("gateway_token", {"state": "ready", "state_path": str(folder)}, capsys)["public_key"]
    arguments = {"state_path": str(folder), "name": "train-llm", "session_id": ONE, "ttl": 60, "path": "x"}
    result = result_of("gateway_token", arguments, capsys)
    claims = verify(result["token"], public)
    assert (claims["sub"], claims["exp"], claims["exp"] - claims["iat"]) == (ONE, result["expires_at"], 60)
    assert abs(claims["iat"] - time.time()) < 60
    assert result["session"] == {"id": ONE, "name": "train-llm"}
    assert result["links"]["apps"][0]["url"] == "https://train-llm--web.apps.example.org/"
    check_mode = result_of("gateway_token", arguments, capsys, check_mode=True)
    assert (check_mode["changed"], "token" in check_mode) == (True, False)
    by_id = result_of("gateway_token", {**arguments, "name": ""}, capsys)
    assert by_id["session"]["name"] == "train-llm"


@pytest.mark.usefixtures("routed")
@pytest.mark.parametrize(
    ("requests", "sentence"),
    [
        ({"name": "nobody"}, "there is no session with the name 'nobody' behind this gateway."),
        (
            {"name": "train-llm", "session_id": TWO},
            f"there is no session with the name 'train-llm' and id '{TWO}' behind",
        ),
        ({"name": "train-llm", "ttl": 59}, "ttl: 59 must be a whole number from 60 to 2592000."),
        ({"name": "train-llm", "ttl": 2592001}, "ttl: 2592001 must be a whole number from 60 to 2592000."),
    ],
)
def test_invalid_token_request_fails(folder: Path, capsys: Captured, requests: dict[str, Any], sentence: str) -> None:
    result_of("gateway_token", {"state": "ready", "state_path": str(folder)}, capsys)
    result = result_of("gateway_token", {"state_path": str(folder), "path": "x", **requests}, capsys)
    assert result["failed"] is True
    assert result["msg"].startswith(sentence)


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
