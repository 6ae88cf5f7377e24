"""The modules of a gateway, run whole: their options, their results, and the one sentence when they fail."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._gateway import haproxy, routing
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.certificate import make
from ansible_collections.backendai.cluster.plugins.modules import gateway_routes
from tests.unit.gateway import ONE, OTHER, ROUTE, TWO, Table, haproxy_of, provisioned
from tests.unit.haproxy import AdminSocket
from tests.unit.plugins.module_utils._gateway.test_token import verify
from tests.unit.plugins.modules.test_failures import result_of

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return provisioned(tmp_path / "state")


@pytest.fixture
def running(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminSocket]:
    """A gateway whose HAProxy and table are faked."""
    Table(partial(monkeypatch.setattr, routing))
    monkeypatch.setattr(gateway_routes, "Haproxy", partial(haproxy.Haproxy, str(folder / "socket")))
    admin = haproxy_of(folder)
    yield admin
    admin.close()


def routes(folder: Path, capsys: Captured, *, check_mode: bool = False, **args: Any) -> dict[str, Any]:
    return result_of("gateway_routes", {"state_path": str(folder), **args}, capsys, check_mode=check_mode)


@pytest.mark.usefixtures("running")
def test_links_are_told_in_the_order_of_the_routes(folder: Path, capsys: Captured) -> None:
    result = routes(folder, capsys, routes=[OTHER, ROUTE])
    assert [one["id"] for one in result["links"]] == [TWO, ONE]
    assert result["links"][1]["apps"] == [
        {"name": "web", "protocol": "http", "url": "https://train-llm--web.apps.example.org/"}
    ]
    assert result["changed"] is True
    assert "HAProxy's apps.map: train-llm/web " in result["diff"]["after"]
    again = routes(folder, capsys, routes=[OTHER, ROUTE])
    assert (again["changed"], again["diff"]) == (False, {"before": "", "after": ""})


@pytest.mark.usefixtures("running")
def test_options_have_defaults(folder: Path, capsys: Captured) -> None:
    routes(
        folder, capsys, routes=[{"id": ONE, "name": "train-llm", "apps": [{"name": "a", "address": "::1", "port": 1}]}]
    )
    result = routes(folder, capsys)
    assert (result["changed"], result["links"]) == (False, [])


@pytest.mark.usefixtures("running")
def test_ended_and_exact_close_doors(folder: Path, capsys: Captured) -> None:
    routes(folder, capsys, routes=[OTHER, ROUTE])
    assert routes(folder, capsys, ended=[ONE], check_mode=True)["changed"] is True
    assert len(list((folder / "routes").iterdir())) == 2
    routes(folder, capsys, ended=[ONE])
    assert [path.stem for path in (folder / "routes").iterdir()] == [TWO]
    routes(folder, capsys, routes=[ROUTE], exact=True)
    assert [path.stem for path in (folder / "routes").iterdir()] == [ONE]


@pytest.mark.usefixtures("running")
def test_a_haproxy_that_does_not_run_is_a_warning(
    folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _module, text: told.append(text))
    monkeypatch.setattr(gateway_routes, "Haproxy", partial(haproxy.Haproxy, str(folder / "nowhere")))
    assert routes(folder, capsys, routes=[ROUTE])["changed"] is True
    assert told == [routing.NOT_RUNNING]


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({"routes": [{**ROUTE, "name": "x"}]}, "routes[0].name: 'x' must have 4 to 64 characters"),
        ({"routes": [{"name": "train-llm"}]}, "missing required arguments: id found in routes"),
        ({"routes": [{**ROUTE, "ssh": {"port": 1}}]}, "missing required arguments: address found in routes -> ssh"),
        (
            {"routes": [{**ROUTE, "apps": [{**ROUTE["apps"][0], "protocol": "udp"}]}]},
            "value of protocol must be one of: ",
        ),
    ],
)
def test_what_cannot_be_a_route_is_refused(folder: Path, capsys: Captured, args: dict[str, Any], sentence: str) -> None:
    result = routes(folder, capsys, **args)
    assert result["failed"] is True
    assert result["msg"].startswith(sentence)


@pytest.mark.parametrize(
    ("module", "args"),
    [("gateway_routes", {}), ("gateway_key", {}), ("session_token", {"name": "train-llm", "path": "x"})],
)
def test_a_host_that_is_no_gateway_fails_with_one_sentence(
    module: str, args: dict[str, Any], tmp_path: Path, capsys: Captured
) -> None:
    result = result_of(module, {"state_path": str(tmp_path / "nowhere"), **args}, capsys)
    assert result["failed"] is True
    assert result["msg"].endswith("run backendai.cluster.provision_gateways on this host.")


def test_a_key_is_made_once_and_its_public_half_told(folder: Path, capsys: Captured) -> None:
    args = {"state_path": str(folder)}
    would = result_of("gateway_key", args, capsys, check_mode=True)
    assert (would["changed"], would["public_key"], (folder / "token.key").exists()) == (True, None, False)
    made = result_of("gateway_key", args, capsys)
    again = result_of("gateway_key", args, capsys)
    assert (made["changed"], again["changed"]) == (True, False)
    assert made["diff"] == {"before": "", "after": f"key {folder}/token.key: made\n"}
    assert made["public_key"] == again["public_key"]
    assert made["public_key"].startswith("-----BEGIN PUBLIC KEY-----\n")


@pytest.mark.usefixtures("running")
def test_a_token_is_signed_for_the_session_and_none_in_check_mode(folder: Path, capsys: Captured) -> None:
    public = result_of("gateway_key", {"state_path": str(folder)}, capsys)["public_key"]
    routes(folder, capsys, routes=[OTHER, ROUTE])
    asked = {"state_path": str(folder), "name": "train-llm", "session_id": ONE, "ttl": 60, "path": "x"}
    result = result_of("session_token", asked, capsys)
    claims = verify(result["token"], public)
    assert (claims["sub"], claims["exp"], claims["exp"] - claims["iat"]) == (ONE, result["expires_at"], 60)
    assert abs(claims["iat"] - time.time()) < 60
    assert result["session"] == {"id": ONE, "name": "train-llm"}
    assert result["links"]["apps"][0]["url"] == "https://train-llm--web.apps.example.org/"
    dry = result_of("session_token", asked, capsys, check_mode=True)
    assert (dry["changed"], "token" in dry) == (True, False)
    by_id = result_of("session_token", {**asked, "name": ""}, capsys)
    assert by_id["session"]["name"] == "train-llm"


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    ("asked", "sentence"),
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
def test_a_token_that_cannot_be_is_one_sentence(
    folder: Path, capsys: Captured, asked: dict[str, Any], sentence: str
) -> None:
    result_of("gateway_key", {"state_path": str(folder)}, capsys)
    routes(folder, capsys, routes=[ROUTE])
    result = result_of("session_token", {"state_path": str(folder), "path": "x", **asked}, capsys)
    assert result["failed"] is True
    assert result["msg"].startswith(sentence)


def test_a_certificate_is_made_or_brought(tmp_path: Path, capsys: Captured) -> None:
    args = {"path": str(tmp_path / "certificate.pem"), "names": ["door.example.org"]}
    would = result_of("gateway_certificate", args, capsys, check_mode=True)
    assert (would["changed"], would["certificate"]["fingerprint"]) == (True, None)
    made = result_of("gateway_certificate", args, capsys)
    assert (made["changed"], made["certificate"]["own"]) == (True, True)
    assert result_of("gateway_certificate", args, capsys)["changed"] is False
    pem = make(["given.example.org"], time.time())
    place = pem.index("-----BEGIN PRIVATE")
    brought = result_of("gateway_certificate", {**args, "certificate": pem[:place], "key": pem[place:]}, capsys)
    assert (brought["changed"], brought["certificate"]["names"]) == (True, ["given.example.org"])
    assert pem[place + 40 : place + 80] not in str(brought)
    assert brought["invocation"]["module_args"]["key"] == "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"


@pytest.mark.parametrize("missing", ["path", "names"])
def test_a_certificate_needs_a_file_and_names(missing: str, capsys: Captured) -> None:
    args = {name: value for name, value in {"path": "/x", "names": ["x"]}.items() if name != missing}
    sentence = f"state is present but all of the following are missing: {missing}"
    assert result_of("gateway_certificate", args, capsys)["msg"] == sentence
