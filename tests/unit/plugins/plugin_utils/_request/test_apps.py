"""The apps of main1, in the request and in the environment."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.plain_data import DataError
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import (
    App,
    PublishedPort,
    preopen_ports,
    service_ports,
)
from tests.unit.builders import plan, refusal, spec

NAME_RULE = "must have 1 to 32 of a-z, 0-9 and -, a letter first, no - last"
PAGE_RULE = "must be a path such as /status, with a query and a fragment if needed"
JUPYTER = {"name": "jupyter", "port": "8888", "command": " jupyter lab\n"}
BOARD = {"name": "board-2", "port": 6006, "protocol": "tcp"}


def test_apps_default_to_http_without_a_command() -> None:
    assert spec(apps=[JUPYTER, BOARD]).apps == (
        App("jupyter", 8888, "http", "jupyter lab"),
        App("board-2", 6006, "tcp", ""),
    )


def test_apps_know_the_path_at_which_they_live() -> None:
    board = {**BOARD, "protocol": "http", "path": "none"}
    apps = spec(apps=[{**JUPYTER, "path": "keep", "start": "/lab?reset#x"}, board]).apps
    assert [(app.path, app.start) for app in apps] == [("keep", "/lab?reset#x"), ("none", "/")]
    assert [app.base_url("train-llm") for app in apps] == ["/s/train-llm/jupyter", "/"]


def test_the_environment_lists_apps_and_those_started_elsewhere() -> None:
    apps = (App("jupyter", 8888, "http", "jupyter lab"), App("board-2", 6006, "tcp"), App("web", 80))
    assert service_ports(apps) == "jupyter:http:8888,board-2:tcp:6006,web:http:80"
    assert preopen_ports(apps) == "6006,80"
    assert (service_ports(()), preopen_ports(())) == ("", "")


@pytest.mark.parametrize(
    ("invalid", "sentence"),
    [
        ({"name": "Jupyter"}, f"session_apps[0].name: 'Jupyter' {NAME_RULE}."),
        ({"name": "../x"}, f"session_apps[0].name: '../x' {NAME_RULE}."),
        ({"name": "ssh"}, "session_apps[0].name: 'ssh' is reserved for the SSH access of the session."),
        ({"name": None}, "session_apps[0].name is required."),
        ({"port": None}, "session_apps[0].port is required."),
        ({"port": 0}, "session_apps[0].port: 0 must be a whole number from 1 to 65535."),
        ({"port": 22}, "session_apps[0].port: 22 is the port of ssh."),
        ({"protocol": "udp"}, "value of session_apps[0].protocol must be one of: http, tcp, got: udp."),
        ({"command": ["a"]}, "session_apps[0].command must be the text of a shell script."),
        (
            {"protocol": "tcp", "path": "keep"},
            "session_apps[0].path: an app of protocol tcp has no link; remove it, or use protocol http.",
        ),
        (
            {"protocol": "tcp", "start": "/lab"},
            "session_apps[0].start: an app of protocol tcp has no link; remove it, or use protocol http.",
        ),
        (
            {"cmd": "x"},
            "session_apps[0].cmd is not known; allowed are name, port, protocol, command, path, start, program.",
        ),
        ({"path": "drop"}, "value of session_apps[0].path must be one of: strip, keep, none, got: drop."),
        ({"start": "status"}, f"session_apps[0].start: 'status' {PAGE_RULE}."),
        ({"start": "//evil.example"}, f"session_apps[0].start: '//evil.example' {PAGE_RULE}."),
        ({"start": "/a b"}, f"session_apps[0].start: '/a b' {PAGE_RULE}."),
    ],
)
def test_each_invalid_app_has_one_message(invalid: dict[str, Any], sentence: str) -> None:
    assert refusal(apps=[{**JUPYTER, **invalid}]) == sentence


def test_app_names_and_ports_are_unique() -> None:
    assert (
        refusal(apps=[JUPYTER, {**JUPYTER, "port": 1}]) == "session_apps: 'jupyter' is the name of more than one app."
    )
    assert refusal(apps=[JUPYTER, {**BOARD, "port": 8888}]) == "session_apps: 8888 is the port of more than one app."


def test_a_session_has_at_most_32_apps_and_no_more_are_judged_one_by_one() -> None:
    apps = [{"name": f"a{number}", "port": 9000 + number} for number in range(32)]
    assert len(spec(apps=apps).apps) == 32
    many = [{"name": "not a name", "port": 0} for _number in range(9000)]
    assert refusal(apps=many) == "session_apps: 9000 apps are requested, a session has at most 32."


def test_a_plan_with_more_apps_than_a_session_has_is_refused() -> None:
    apps = tuple(App(f"a{number}", 9000 + number) for number in range(33))
    published = tuple(PublishedPort(app.name, "http", app.port, "192.0.2.1", app.port) for app in apps)
    planned = plan()
    dataclasses.replace(planned, apps=apps[:32], published=published).check()
    for many in (dataclasses.replace(planned, apps=apps), dataclasses.replace(planned, published=published * 2)):
        with pytest.raises(DataError, match="it has more than 32 apps"):
            many.check()
