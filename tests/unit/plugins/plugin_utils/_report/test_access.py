"""User access to main1: routes for gateways, and links for users."""

from __future__ import annotations

import dataclasses
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._model.session import PublishedPort
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.access import (
    build_gateway_route,
    render_access,
    session_links,
)
from tests.unit.builders import SESSION_ID, plan

PORTS = (
    PublishedPort("ssh", "tcp", 22, "192.0.2.1", 30001),
    PublishedPort("jupyter", "http", 8888, "192.0.2.1", 30002),
    PublishedPort("db", "tcp", 5432, "192.0.2.1", 30003),
)
APPS = [
    {"name": "jupyter", "port": 8888, "command": "secret", "path": "keep", "start": "/lab"},
    {"name": "db", "port": 5432, "protocol": "tcp"},
]
JUPYTER_ROUTE = {"name": "jupyter", "protocol": "http", "address": "192.0.2.1", "port": 30002}
MADE = dataclasses.replace(plan({"agent1": 1}, apps=APPS), published=PORTS)
JUPYTER = {"name": "jupyter", "url": "https://gateway/s/train-llm/jupyter/"}
LINK = {
    "id": SESSION_ID,
    "name": "train-llm",
    "ssh": {"host": "gateway", "port": 31001},
    "apps": [{**JUPYTER, "protocol": "http"}, {"name": "db", "url": None}],
}


def in_by(gateway: str, **changes: Any) -> dict[str, Any]:
    """Return the link of that gateway, by default with sshd and no app."""
    return {"gateway": gateway, "ssh": {"host": gateway, "port": 31001}, "apps": [], **changes}


def test_routes_contain_the_endpoints_of_sshd_and_apps() -> None:
    assert build_gateway_route(MADE) == {
        "id": SESSION_ID,
        "name": "train-llm",
        "ssh": {"address": "192.0.2.1", "port": 30001},
        "apps": [
            {**JUPYTER_ROUTE, "path": "keep", "start": "/lab"},
            {"name": "db", "protocol": "tcp", "path": "strip", "start": "/", "address": "192.0.2.1", "port": 30003},
        ],
    }


def test_what_is_not_published_has_no_way_in() -> None:
    partly = dataclasses.replace(MADE, published=PORTS[1:2])
    assert build_gateway_route(partly) == {
        "id": SESSION_ID,
        "name": "train-llm",
        "ssh": None,
        "apps": [{**JUPYTER_ROUTE, "path": "keep", "start": "/lab"}],
    }


def test_the_ways_in_to_a_session_are_one_for_each_gateway_by_its_name() -> None:
    other = {**LINK, "id": "other"}
    assert session_links(SESSION_ID, {"gateway2": [other, LINK], "gateway1": [LINK], "gateway3": [other]}) == [
        {"gateway": name, "ssh": LINK["ssh"], "apps": [JUPYTER, {"name": "db", "url": None}]}
        for name in ("gateway1", "gateway2")
    ]


def test_a_session_that_no_gateway_knows_has_no_way_in() -> None:
    assert session_links(SESSION_ID, {}) == session_links(SESSION_ID, {"gateway1": []}) == []


def test_access_lines_contain_the_ssh_configuration_and_token_command() -> None:
    assert render_access("train-llm", session_links(SESSION_ID, {"gateway1": [LINK]})) == [
        "Put this into ~/.ssh/config for `ssh train-llm`, through gateway1:",
        "  Host train-llm",
        "    HostName gateway",
        "    Port 31001",
        "    User work",
        "Its apps require a token:",
        "  jupyter          https://gateway/s/train-llm/jupyter/",
        "  db               no link, use ssh -L: train-llm",
        (
            "Create a token with ansible-playbook -i INVENTORY backendai.cluster.session_token"
            " -e session_name=train-llm -e session_token_path=FILE"
        ),
    ]


def test_what_a_gateway_says_stays_on_its_line() -> None:
    said = {**LINK, "ssh": {"host": "a\nProxyCommand x", "port": 7}, "apps": [{"name": "b\nc", "url": "d\ne"}]}
    lines = render_access("a", session_links(SESSION_ID, {"gateway1": [said]}), "key")
    assert [line for line in lines if "\n" in line] == []
    assert {"    HostName a\\nProxyCommand x", "  b\\nc              d\\ne"} <= {*lines}


def test_access_lines_contain_a_known_host_key() -> None:
    assert render_access("a", [in_by("gateway1"), in_by("2001:db8::7")], "ssh-ed25519 HOST-main1")[5:] == [
        "and this into ~/.ssh/known_hosts:",
        "  [gateway1]:31001 ssh-ed25519 HOST-main1",
        "Put this into ~/.ssh/config for `ssh a`, through 2001:db8::7:",
        "  Host a",
        "    HostName 2001:db8::7",
        "    Port 31001",
        "    User work",
        "and this into ~/.ssh/known_hosts:",
        "  [2001:db8::7]:31001 ssh-ed25519 HOST-main1",
    ]
    assert "HOST-main1" not in str(render_access("a", [in_by("gateway1", ssh=None, apps=[JUPYTER])], "HOST-main1"))


def test_access_lines_without_apps_mention_no_token() -> None:
    assert [line for line in render_access("a", [in_by("gateway1"), in_by("gateway2")]) if ", through " in line] == [
        "Put this into ~/.ssh/config for `ssh a`, through gateway1:",
        "Put this into ~/.ssh/config for `ssh a`, through gateway2:",
    ]
    assert len(render_access("a", [in_by("gateway1")])) == 5


def test_access_lines_without_sshd_contain_apps_only() -> None:
    assert render_access("a", [in_by("gateway1", ssh=None, apps=[JUPYTER])])[:2] == [
        "Its apps require a token:",
        "  jupyter          https://gateway/s/train-llm/jupyter/",
    ]


def test_access_lines_are_empty_without_links() -> None:
    assert render_access("a", []) == []
