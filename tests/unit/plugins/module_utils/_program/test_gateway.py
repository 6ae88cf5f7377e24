"""The phases of a gateway: routes and token."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._gateway import haproxy, routing
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.token import make_token_key, public_key
from ansible_collections.backendai.cluster.plugins.module_utils._program import gateway
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_replies import check_reply
from tests.unit.gateway import ONE, OTHER, ROUTE, TWO, Table, haproxy_of, provisioned
from tests.unit.haproxy import AdminSocket
from tests.unit.phases import failure_of, result_of
from tests.unit.plugins.module_utils._gateway.test_token import verify

NOTHING: dict[str, Any] = {"routes": [], "ended": [], "vacated": [], "purge": False}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a provisioned gateway."""
    return provisioned(tmp_path / "state")


@pytest.fixture
def running(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminSocket]:
    """Return the HAProxy of the gateway, with a faked table."""
    Table(partial(monkeypatch.setattr, routing))
    monkeypatch.setattr(gateway, "Haproxy", partial(haproxy.Haproxy, str(folder / "socket")))
    admin = haproxy_of(folder)
    yield admin
    admin.close()


def routes(folder: Path, *, check_mode: bool = False, **options: Any) -> dict[str, Any]:
    return result_of("routes", {**NOTHING, "state_path": str(folder), **options}, check_mode=check_mode)


@pytest.mark.usefixtures("running")
def test_links_are_in_the_order_of_the_routes(folder: Path) -> None:
    result = routes(folder, routes=[OTHER, ROUTE])
    assert [link["id"] for link in result["links"]] == [TWO, ONE]
    assert result["links"][1]["apps"] == [
        {"name": "web", "protocol": "http", "url": "https://train-llm--web.apps.example.org/"}
    ]
    assert (result["changed"], result["warnings"]) == (True, [])
    assert "HAProxy's apps.map: train-llm/web " in result["diff"]["after"]
    again = routes(folder, routes=[OTHER, ROUTE])
    assert (again["changed"], again["diff"]) == (False, {"before": "", "after": ""})


@pytest.mark.usefixtures("running")
def test_ended_and_purge_remove_routes(folder: Path) -> None:
    routes(folder, routes=[OTHER, ROUTE])
    assert routes(folder)["changed"] is False
    assert routes(folder, ended=[ONE], check_mode=True)["changed"] is True
    assert len(list((folder / "routes").iterdir())) == 2
    routes(folder, ended=[ONE])
    assert [path.stem for path in (folder / "routes").iterdir()] == [TWO]
    routes(folder, routes=[ROUTE], purge=True)
    assert [path.stem for path in (folder / "routes").iterdir()] == [ONE]


@pytest.mark.usefixtures("running")
def test_removed_routes_are_confirmed(folder: Path) -> None:
    routes(folder, routes=[OTHER, ROUTE])
    result = routes(folder, ended=[ONE], vacated=[{"id": TWO, "address": "192.0.2.12"}])
    assert (result["unrouted"], list((folder / "routes").iterdir())) == ([ONE, TWO], [])


@pytest.mark.usefixtures("running")
def test_stopped_haproxy_is_a_warning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "Haproxy", partial(haproxy.Haproxy, str(folder / "nowhere")))
    result = routes(folder, routes=[ROUTE])
    assert (result["changed"], result["warnings"]) == (True, [routing.NOT_RUNNING])


@pytest.mark.usefixtures("running")
def test_invalid_route_is_refused_with_one_sentence(folder: Path) -> None:
    options = {**NOTHING, "state_path": str(folder), "routes": [{**ROUTE, "name": "x"}]}
    assert failure_of("routes", options).startswith("routes[0].name: 'x' must have 2 to 64 characters")


def test_unprovisioned_host_fails_with_one_sentence(tmp_path: Path) -> None:
    sentence = failure_of("routes", {**NOTHING, "state_path": str(tmp_path / "nowhere")})
    assert sentence.endswith("run backendai.cluster.provision_gateways on this host.")


# ---- tokens


@pytest.fixture
def public(folder: Path) -> str:
    """Create the key of the gateway, and return its public key."""
    make_token_key(folder / "token.key")
    return public_key(folder / "token.key")


ASKED: dict[str, Any] = {"name": "train-llm", "session_id": ONE, "ttl": 60}


@pytest.mark.usefixtures("running")
def test_token_is_signed_except_in_check_mode(folder: Path, public: str) -> None:
    routes(folder, routes=[OTHER, ROUTE])
    options = {**ASKED, "state_path": str(folder)}
    result = result_of("token", options)
    claims = verify(result["token"], public)
    assert (claims["sub"], claims["exp"], claims["exp"] - claims["iat"]) == (ONE, result["expires_at"], 60)
    assert abs(claims["iat"] - time.time()) < 60
    assert result["session"] == {"id": ONE, "name": "train-llm"}
    assert result["links"]["apps"][0]["url"] == "https://train-llm--web.apps.example.org/"
    checked = result_of("token", options, check_mode=True)
    assert (checked["changed"], "token" in checked) == (True, False)
    assert result_of("token", {**options, "name": ""})["session"]["name"] == "train-llm"
    check_reply("token", result)


@pytest.mark.usefixtures("running", "public")
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": "nobody", "session_id": ""}, "there is no session with the name 'nobody' behind this gateway."),
        ({"session_id": TWO}, f"there is no session with the name 'train-llm' and id '{TWO}' behind"),
        ({"ttl": 59}, "ttl: 59 must be a whole number from 60 to 2592000."),
        ({"ttl": 2592001}, "ttl: 2592001 must be a whole number from 60 to 2592000."),
    ],
)
def test_invalid_token_request_fails(folder: Path, changes: dict[str, Any], sentence: str) -> None:
    routes(folder, routes=[OTHER, ROUTE])
    assert failure_of("token", {**ASKED, "state_path": str(folder), **changes}).startswith(sentence)


def test_host_that_is_no_gateway_signs_nothing(tmp_path: Path) -> None:
    failure = failure_of("token", {**ASKED, "state_path": str(tmp_path / "nowhere")})
    assert failure.endswith("run backendai.cluster.provision_gateways on this host.")
