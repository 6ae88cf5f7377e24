"""Routes: invalid ones, owners of names and endpoints, ports and links of sessions."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.model import Gateway
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.routes import (
    APPS,
    HOSTS,
    SSH,
    Endpoint,
    Route,
    RoutedApp,
    Vacated,
    build_app_links,
    build_haproxy_maps,
    describe_without_port,
    merge_routes,
    parse_routes,
    parse_vacated,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.plain_data import from_plain, to_plain
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError

GATEWAY = Gateway("door.example.org", "", 443, 31001, 31004)
NAMED = dataclasses.replace(GATEWAY, domain="apps.example.org", https_port=8443)
IDS = [f"{number:08x}-3c0e-4f5e-9d0a-0f3c1d2e4b6a" for number in range(10)]
WEB = {"name": "web", "protocol": "http", "address": "192.0.2.11", "port": 30001}
ASKED = {
    "id": IDS[0],
    "name": "train-llm",
    "apps": [WEB],
    "ssh": {"address": "2001:DB8::1", "port": 30002},
}


def route(number: int, **changes: Any) -> Route:
    """Return the route of a session with an app and an sshd at its own endpoints."""
    built = Route(
        IDS[number],
        f"session-{number}",
        (RoutedApp("web", "http", Endpoint("192.0.2.11", 30000 + 2 * number)),),
        Endpoint("192.0.2.11", 30001 + 2 * number),
    )
    return dataclasses.replace(built, **changes)


def added(
    existing: dict[str, Route], *new: Route, ended: tuple[str, ...] = (), exact: bool = False
) -> dict[str, Route]:
    return merge_routes(existing, new, ended, exact, GATEWAY)


def test_routes_are_parsed() -> None:
    web = RoutedApp("web", "http", Endpoint("192.0.2.11", 30001))
    assert parse_routes([ASKED]) == [Route(IDS[0], "train-llm", (web,), Endpoint("2001:db8::1", 30002))]
    assert parse_routes([{**ASKED, "apps": None, "ssh": None}]) == [Route(IDS[0], "train-llm")]


def test_stored_routes_are_read_back() -> None:
    for item in (route(1, ssh_port=31001), Route(IDS[0], "train-llm")):
        assert from_plain(Route, to_plain(item), "route") == item


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"id": "x"}, "routes[0].id: 'x' must be the id of a session, such as"),
        ({"id": ""}, "routes[0].id is required."),
        ({"name": "x"}, "routes[0].name: 'x' must have 2 to 64 characters of a-z, 0-9 and -"),
        ({"image": "x"}, "routes[0].image is not known; allowed are id, name, apps, ssh."),
        ({"apps": [{**WEB, "path": "x"}]}, "routes[0].apps[0].path: 'x' must be one of strip, keep, none."),
        ({"apps": [{**WEB, "start": "x"}]}, "routes[0].apps[0].start: 'x' must be a path such as /status"),
        ({"apps": [{**WEB, "name": "Web"}]}, "routes[0].apps[0].name: 'Web' must have 1 to 32 of a-z"),
        ({"ssh": {"address": "here", "port": 1}}, "routes[0].ssh.address: 'here' must be an IPv4 or IPv6 address."),
        ({"ssh": {"address": "fe80::1%e", "port": 1}}, "routes[0].ssh.address: 'fe80::1%e' must be an IPv4 or IPv6"),
        ({"ssh": {"address": "::1", "port": 0}}, "routes[0].ssh.port: 0 must be a whole number from 1 to 65535."),
        ({"ssh": {"address": "192.0.2.11", "port": 30001}}, "routes: '192.0.2.11 port 30001' is the endpoint of more"),
    ],
)
def test_each_invalid_option_has_one_message(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        parse_routes([{**ASKED, **changes}])
    assert str(refusal.value).startswith(sentence)
    assert "\n" not in str(refusal.value)


def test_vacated_sessions_are_parsed() -> None:
    assert parse_vacated([{"id": IDS[1], "address": "2001:DB8::1"}]) == [Vacated(IDS[1], "2001:db8::1")]
    with pytest.raises(ValidationError, match=r"^vacated\[0\]\.address: 'here' must be an IPv4 or IPv6 address\.$"):
        parse_vacated([{"id": IDS[1], "address": "here"}])


@pytest.mark.parametrize(
    ("path", "by_path", "by_host"),
    [
        ("strip", "https://door.example.org/s/session-1/app/x?y", "https://session-1--app.apps.example.org:8443/x?y"),
        ("keep", "https://door.example.org/s/session-1/app/x?y", "/s/session-1/app/x?y"),
        ("none", None, "https://session-1--app.apps.example.org:8443/x?y"),
    ],
)
def test_links_open_the_start_page_where_the_app_is(path: str, by_path: str | None, by_host: str) -> None:
    built = route(1, apps=(RoutedApp("app", "http", Endpoint("192.0.2.11", 1), path, "/x?y"),))
    assert build_app_links(built, GATEWAY)["apps"][0]["url"] == by_path
    assert build_app_links(built, NAMED)["apps"][0]["url"].endswith(by_host)
    closed = dataclasses.replace(GATEWAY, path_links=False)
    assert build_app_links(built, closed)["apps"][0]["url"] is None


def test_an_app_has_every_origin_by_which_a_gateway_offers_it() -> None:
    by_host, by_path = "https://session-1--app.apps.example.org:8443", "https://door.example.org:8443"
    assert NAMED.app_origins("session-1", "app", "keep") == [by_host, by_path]
    assert NAMED.app_origins("session-1", "app", "none") == [by_host]
    assert GATEWAY.app_origins("session-1", "app", "none") == []


def test_duplicate_names_are_rejected() -> None:
    other = {**ASKED, "id": IDS[1], "apps": [], "ssh": None}
    with pytest.raises(ValidationError, match="routes: 'train-llm' is the name of more than one"):
        parse_routes([ASKED, other])
    app = {"name": "web", "address": "192.0.2.12", "port": 1}
    with pytest.raises(ValidationError, match=r"routes\[0\]\.apps: 'web' is the name of more than one app"):
        parse_routes([{**ASKED, "apps": [app, {**app, "port": 2}]}])


def test_routes_are_added_kept_and_removed() -> None:
    first = added({}, route(1), route(2))
    assert added(first) == first
    assert added(first, route(1)) == first
    assert added(first, ended=(IDS[1], IDS[9])) == {IDS[2]: first[IDS[2]]}
    assert set(added(first, route(3), exact=True)) == {IDS[3]}
    assert added(first, exact=True) == {}


def test_a_changed_route_keeps_its_port() -> None:
    first = added({}, route(1))
    moved = added(first, route(1, apps=(), ssh=Endpoint("192.0.2.12", 30000)))
    assert moved[IDS[1]].ssh_port == first[IDS[1]].ssh_port
    assert moved[IDS[1]].apps == ()


def test_a_session_without_sshd_has_no_port() -> None:
    first = added({}, route(1))
    assert added(first, route(1, ssh=None))[IDS[1]].ssh_port is None


def test_an_endpoint_belongs_to_the_latest_session() -> None:
    first = added({}, route(1), route(2))
    taken = added(first, route(3, apps=route(1).apps, ssh=route(2).ssh))
    assert taken[IDS[1]].apps == ()
    assert taken[IDS[1]].ssh_port == first[IDS[1]].ssh_port
    assert (taken[IDS[2]].ssh, taken[IDS[2]].ssh_port) == (None, None)
    assert taken[IDS[3]].endpoints == [route(2).ssh, route(1).apps[0].endpoint]


def test_an_older_session_of_the_same_name_is_removed() -> None:
    assert set(added(added({}, route(1)), route(2, name="session-1"))) == {IDS[2]}


def test_a_port_outside_of_a_range_that_changed_is_replaced() -> None:
    existing = {IDS[1]: route(1, ssh_port=40000)}
    port = added(existing)[IDS[1]].ssh_port
    assert port is not None
    assert 31001 <= port <= 31004


def test_a_session_for_which_no_port_is_left_has_its_apps_and_stops_no_other_route() -> None:
    full = added({}, *(route(number) for number in range(4)))
    assert sorted(item.ssh_port or 0 for item in full.values()) == [31001, 31002, 31003, 31004]
    assert describe_without_port(full.values(), GATEWAY) == []
    # Finding 18: the routes of ended sessions stayed, on every gateway.
    more = added(full, route(4), route(5), ended=(IDS[0],))
    assert more.keys() == {*IDS[1:6]}
    assert [item.ssh_port for item in more.values()].count(None) == 1
    (without,) = [item for item in more.values() if item.ssh_port is None]
    (warning,) = describe_without_port(more.values(), GATEWAY)
    start = "gateway_ssh_ports: 31001-31004 has no port left for session"
    assert warning.startswith(f"{start} {without.name} ({without.id}): it cannot be reached by SSH")
    assert build_app_links(without, GATEWAY)["ssh"] is None
    assert build_app_links(without, GATEWAY)["apps"][0]["url"]
    maps = build_haproxy_maps(more.values(), GATEWAY)
    assert (len(maps[SSH]), len(maps[APPS])) == (4, 5)
    # The port of a session that ends is for it.
    assert added(more, ended=(IDS[1],))[without.id].ssh_port is not None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=12))
def test_no_two_sessions_share_a_name_an_endpoint_or_a_port(steps: list[tuple[int, int, bool]]) -> None:
    existing: dict[str, Route] = {}
    wide = dataclasses.replace(GATEWAY, last_ssh_port=31010)
    for number, other, ends in steps:
        new = route(number, name=f"session-{other}", apps=route(other).apps)
        existing = merge_routes(existing, [new], [IDS[other]] if ends else [], False, wide)
        endpoints = [end for item in existing.values() for end in item.endpoints]
        ports = [item.ssh_port for item in existing.values() if item.ssh]
        assert len(endpoints) == len(set(endpoints))
        assert len(ports) == len(set(ports)) == len([port for port in ports if port and 31001 <= port <= 31010])
        assert len({item.name for item in existing.values()}) == len(existing)
        assert existing[new.id].name == new.name


def test_map_entries_contain_session_and_endpoint() -> None:
    db = RoutedApp("db", "tcp", Endpoint("192.0.2.11", 1))
    six = RoutedApp("six", "http", Endpoint("2001:db8::1", 30009), "keep")
    built = route(1, ssh_port=31002, apps=(*route(1).apps, db, six))
    assert build_haproxy_maps([built, route(2, ssh=None, apps=())], GATEWAY) == {
        APPS: {
            "session-1/web": f"{IDS[1]}@30002@192.0.2.11@strip",
            "session-1/six": f"{IDS[1]}@30009@2001:db8::1@keep",
        },
        HOSTS: {},
        SSH: {"31002": f"{IDS[1]}@30003@192.0.2.11"},
    }
    assert build_haproxy_maps([built], NAMED)[HOSTS] == {
        "session-1--web.apps.example.org": "session-1/web",
        "session-1--six.apps.example.org": "session-1/six",
    }


@pytest.mark.parametrize(
    ("session", "app", "host"),
    [
        ("a" * 58, "web", f"{'a' * 58}--web.apps.example.org"),
        ("a" * 59, "web", ""),
        ("a--b", "web", "a--b--web.apps.example.org"),
        ("a", "b--web", ""),
    ],
)
def test_an_app_has_a_host_name_if_valid_and_unambiguous(session: str, app: str, host: str) -> None:
    assert NAMED.app_hostname(session, app) == host
    assert GATEWAY.app_hostname(session, app) == ""


def test_links_contain_ssh_and_app_urls() -> None:
    db = RoutedApp("db", "tcp", Endpoint("192.0.2.11", 1))
    built = route(1, ssh_port=31002, apps=(*route(1).apps, db))
    links = build_app_links(built, GATEWAY)
    assert links == {
        "id": IDS[1],
        "name": "session-1",
        "ssh": {"host": "door.example.org", "port": 31002},
        "apps": [
            {"name": "web", "protocol": "http", "url": "https://door.example.org/s/session-1/web/"},
            {"name": "db", "protocol": "tcp", "url": None},
        ],
    }
    assert build_app_links(built, NAMED)["apps"][0]["url"] == "https://session-1--web.apps.example.org:8443/"
    long = dataclasses.replace(built, name="a" * 64)
    assert build_app_links(long, NAMED)["apps"][0]["url"] == f"https://door.example.org:8443/s/{'a' * 64}/web/"
    assert build_app_links(route(1, ssh=None), GATEWAY)["ssh"] is None
