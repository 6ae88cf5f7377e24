"""What the collection asks an engine, in each version of the API, is what the published descriptions have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._docker.api_version import NEWEST, OLDEST
from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from tests.unit.engine_api.calls import make_all_calls
from tests.unit.engine_api.derive import CALLS, fields_of, spans
from tests.unit.engine_api.engine import ApiEngine
from tests.unit.engine_api.judge import described_versions, problems_of


def test_versions_that_are_named_are_those_that_are_described() -> None:
    assert (described_versions()[0], described_versions()[-1]) == (OLDEST, NEWEST)


@pytest.mark.parametrize("containerd", [False, True], ids=["own store", "containerd"])
@pytest.mark.parametrize("version", described_versions())
def test_every_call_has_only_what_its_version_describes(tmp_path: Path, version: str, containerd: bool) -> None:
    with ApiEngine(tmp_path / "docker.sock", version, containerd=containerd).serving() as engine:
        make_all_calls(connect(engine.url))
    assert engine.problems == []
    assert engine.calls == {*CALLS}
    named = {target.split("/")[1] for _method, target, _body in engine.asked if target != "/_ping"}
    assert named == {f"v{version}"}


def test_a_client_of_the_sdk_alone_names_the_version_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ApiEngine(tmp_path / "docker.sock", "1.99").serving() as engine:
        monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
        client: Any = connect(engine.url)
        client.info()
    assert (client.api_version, engine.asked[-1][1]) == (NEWEST, f"/v{NEWEST}/info")


CREATE = "POST", "/v1.52/containers/create?name=a"


@pytest.mark.parametrize(
    ("method", "target", "body", "problem"),
    [
        (*CREATE, {"MacAddress": "02:00:00:00:00:01"}, "the field MacAddress, which API 1.52 does not have"),
        (*CREATE, {"HostConfig": {"Colour": 1}}, "the field HostConfig.Colour, which API 1.52 does not have"),
        (*CREATE, {"NetworkingConfig": {"EndpointsConfig": {"a": {"Mac": ""}}}}, r"EndpointsConfig\.\*\.Mac, which"),
        (*CREATE, {"HostConfig": {"Mounts": [{"Type": "bind", "Kind": ""}]}}, "HostConfig.Mounts.Kind, which"),
        ("POST", "/v1.46/networks/create", {"CheckDuplicate": True}, "CheckDuplicate, which API 1.46 does not have"),
        ("GET", "/v1.41/containers/json?trunc_cmd=0", None, "the parameter trunc_cmd, which API 1.41 does not have"),
        ("GET", "/containers/json", None, "names no version"),
        ("GET", "/v1.40/info", None, "described nowhere"),
        ("POST", "/v1.41/containers/a/update", {}, "a call without a list"),
    ],
)
def test_what_is_not_described_is_a_problem(method: str, target: str, body: Any, problem: str) -> None:
    assert len(problems_of(method, target, body)) == 1
    with pytest.raises(AssertionError, match=problem):
        assert problems_of(method, target, body) == []


def test_what_is_described_is_none() -> None:
    assert problems_of("POST", "/v1.51/containers/create", {"MacAddress": "a", "Labels": {"x.y": "z"}}) == []
    assert problems_of("POST", "/v1.52/containers/create", {"MacAddress": None}) == []
    assert problems_of("GET", "/_ping") == []


def test_fields_are_derived_through_references_lists_and_chosen_names() -> None:
    part = {"properties": {"Ports": {"type": "array", "items": {"properties": {"Port": {}}}}}}
    labels = {"properties": {"Labels": {"additionalProperties": {"type": "string"}}}}
    schema = {"allOf": [{"$ref": "#/definitions/Part"}, labels]}
    assert [*fields_of({"definitions": {"Part": part}}, schema)] == ["Ports", "Ports.Port", "Labels", "Labels.*"]
    assert spans({"1": {"a", "old"}, "2": {"a", "new"}, "3": {"a", "new"}}) == {
        "-": ["a"],
        "2-": ["new"],
        "-1": ["old"],
    }
