"""Apps behind the gateway, by path and by host name: the real HAProxy, and an app that returns its request."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.integration.programs.web_app import serve
from tests.unit.builders import SESSION_ID
from tests.unit.running_gateway import ADDRESS, NAME, OTHER, OTHER_ID, Answer, RunningGateway

DOMAIN = "apps.example.org"
WEB = f"{NAME}--web.{DOMAIN}"
Result = TypeVar("Result")
Send = Callable[..., Awaitable[Answer]]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with a domain."""
    made = RunningGateway(tmp_path_factory.mktemp("gateway"), domain=DOMAIN)
    with made.running():
        yield made


def run(gateway: RunningGateway, test: Callable[[], Awaitable[Result]]) -> Result:
    """Return the result of a test while the apps of both sessions run."""

    async def with_apps() -> Result:
        mine = await asyncio.start_server(partial(serve, "mine"), ADDRESS, gateway.app_port)
        theirs = await asyncio.start_server(partial(serve, "theirs"), ADDRESS, gateway.other_port)
        async with mine, theirs:
            return await test()

    return asyncio.run(with_apps())


def head(path: str, method: str = "GET", host: str = ADDRESS, **headers: str) -> str:
    """Return the head of a request; names of headers have "_" for "-"."""
    fields = {"Host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return "\r\n".join([f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())])


def ask(gateway: RunningGateway, *heads: str) -> list[Answer]:
    """Return the answers to requests over one connection."""
    return run(gateway, lambda: gateway.send_all(heads))


def bearer(gateway: RunningGateway) -> str:
    return f"Bearer {gateway.token()}"


def by_path(gateway: RunningGateway) -> str:
    return f"__Secure-backendai-{SESSION_ID}={gateway.token()}"


def by_host(gateway: RunningGateway) -> str:
    return f"__Host-backendai={gateway.token()}"


def received(answer: Answer) -> dict[str, Any]:
    """Return what the app got: its name, and the ``path`` and ``headers`` of the request."""
    assert answer.status == 200, answer
    request = json.loads(answer.body)
    return {**request, "headers": {name.lower(): value for name, value in request["headers"]}}


@pytest.mark.parametrize(
    ("path", "host", "arrives", "prefix"),
    [
        (f"/s/{NAME}/web/a%2fb/../c//d?q=1&token=own", ADDRESS, "/a%2fb/../c//d?q=1&token=own", f"/s/{NAME}/web"),
        (f"/s/{NAME}/web/", ADDRESS, "/", f"/s/{NAME}/web"),
        (f"/s/{NAME}/notebook/tree?x", ADDRESS, f"/s/{NAME}/notebook/tree?x", None),
        (f"/s/{NAME}/notebook/tree", f"{NAME}--notebook.{DOMAIN}", f"/s/{NAME}/notebook/tree", None),
        ("/s/x/y/", WEB.upper(), "/s/x/y/", None),
        ("//x", f"{NAME}--editor.{DOMAIN}", "//x", None),
    ],
)
def test_only_stripped_apps_by_path_lose_their_prefix(
    gateway: RunningGateway, path: str, host: str, arrives: str, prefix: str | None
) -> None:
    (answer,) = ask(gateway, head(path, host=host, Authorization=bearer(gateway), Origin="https://any.example"))
    request = received(answer)
    assert (request["app"], request["path"]) == ("mine", arrives)
    assert request["headers"].get("x-forwarded-prefix") == prefix
    assert (request["headers"]["host"], request["headers"]["origin"]) == (host, "https://any.example")


def test_the_root_of_an_app_and_a_path_without_a_slash_lead_to_its_base_url(gateway: RunningGateway) -> None:
    host = f"{NAME}--notebook.{DOMAIN}"
    answer, bare, stripped = ask(
        gateway,
        head("/", host=host, Authorization=bearer(gateway)),
        head(f"/s/{NAME}/notebook?x=1", Authorization=bearer(gateway)),
        head(f"/s/{NAME}/web?x=1", Authorization=bearer(gateway)),
    )
    assert (answer.status, answer.header("location")) == (302, f"/s/{NAME}/notebook/")
    assert (bare.status, bare.header("location")) == (308, f"/s/{NAME}/notebook/?x=1")
    assert (stripped.status, stripped.header("location")) == (308, f"/s/{NAME}/web/?x=1")


def test_an_app_by_host_name_only_is_refused_by_path_in_plain_words(gateway: RunningGateway) -> None:
    page, data = ask(
        gateway,
        head(f"/s/{NAME}/editor/", Authorization=bearer(gateway)),
        head(f"/s/{NAME}/editor/", Authorization=bearer(gateway), Accept="application/json"),
    )
    sentence = "This app is offered by a host name of its own only. Open the link that session_token prints."
    assert page.status == data.status == 404
    assert sentence in page.body
    assert json.loads(data.body) == {"error": sentence}


def test_an_app_by_host_name_only_is_refused_by_path_after_a_request_by_host_name(gateway: RunningGateway) -> None:
    token = bearer(gateway)
    named = head("/", host=f"{NAME}--editor.{DOMAIN}", Authorization=token)
    placed = head(f"/s/{NAME}/editor/", Authorization=token)
    assert [answer.status for answer in ask(gateway, named, placed, named)] == [200, 404, 200]


@pytest.mark.parametrize(
    ("path", "host", "cookie", "scope"),
    [
        (f"/s/{NAME}/web/lab", ADDRESS, f"__Secure-backendai-{SESSION_ID}", f"Path=/s/{NAME}"),
        ("/lab", WEB, "__Host-backendai", "Path=/"),
    ],
)
@pytest.mark.parametrize("mark", ["&", ";"])
def test_a_link_sets_the_cookie_of_one_session_and_its_token_goes_no_further(
    gateway: RunningGateway, path: str, host: str, cookie: str, scope: str, mark: str
) -> None:
    token, other = gateway.token(), gateway.token(OTHER_ID)
    (answer,) = ask(gateway, head(f"{path}?x=1{mark}token={token}{mark}y=2&token={other}", host=host))
    name_and_value, *attributes = answer.header("set-cookie").split("; ")
    assert (answer.status, answer.header("location")) == (302, f"https://{host}{path}?x=1{mark}y=2")
    assert name_and_value == f"{cookie}={token}"
    assert {"Secure", "HttpOnly", "SameSite=Lax", scope} < {*attributes}
    assert not [attribute for attribute in attributes if attribute.lower().startswith("domain")]
    (opened,) = ask(gateway, head(f"{path}?x=1", host=host, Cookie=f"a=1; {name_and_value}; b=2"))
    assert received(opened)["headers"]["cookie"] == "a=1; b=2"


def test_the_token_of_a_websocket_and_of_a_form_does_not_reach_the_app(gateway: RunningGateway) -> None:
    path = f"/s/{NAME}/web/x?a=1&token={gateway.token()}"
    (posted,) = ask(gateway, head(path, "POST", Content_Length="0"))
    assert received(posted)["path"] == "/x?a=1"
    answers = ask(gateway, head(path, "POST", Content_Length="0"), head(f"/s/{NAME}/web/x"))
    assert [answer.status for answer in answers] == [200, 403]


@pytest.mark.parametrize(
    ("method", "fields"), [("POST", {"Content_Length": "0"}), ("GET", {"Upgrade": "any", "Connection": "Upgrade"})]
)
def test_of_two_tokens_in_link_and_header_the_app_gets_neither(
    gateway: RunningGateway, method: str, fields: dict[str, str]
) -> None:
    path = f"/s/{NAME}/web/x?token={gateway.token()}"
    second = [bearer(gateway), f"Bearer {gateway.token(OTHER_ID)}"]
    own = ["Bearer eyJ.eyJ.x", "Basic dTpw"]
    answers = [ask(gateway, head(path, method, Authorization=value, **fields))[0] for value in (*second, *own)]
    assert [received(answer)["headers"].get("authorization") for answer in answers] == [None, None, *own]
    assert {received(answer)["path"] for answer in answers} == {"/x"}


def test_the_token_of_another_session_opens_nothing_however_it_is_sent(gateway: RunningGateway) -> None:
    mine, theirs = gateway.token(), gateway.token(OTHER_ID)
    path, cookie = f"/s/{OTHER}/web/", f"__Secure-backendai-{OTHER_ID}"
    good = head(path, Cookie=f"{cookie}={theirs}")
    hostile = [
        head(path, Authorization=f"Bearer {mine}"),
        head(f"{path}?token={mine}"),
        head(path, Cookie=f"{cookie}={mine}"),
        head(path, Cookie=f"__Host-backendai={mine}"),
        head(path, Cookie=f"__Secure-backendai-{SESSION_ID}={theirs}"),
        head(path, Cookie=f"{cookie}_of_app={theirs}; x{cookie}={theirs}"),
        head(f"{path}?token={mine}", Cookie=f"{cookie}={theirs}"),
        head(path, Authorization=f"Bearer {mine}", Cookie=f"{cookie}={theirs}"),
        head(path),
    ]
    for request in hostile:
        first, answer, last = ask(gateway, good, request, good)
        assert (received(first)["app"], answer.status, received(last)["app"]) == ("theirs", 403, "theirs"), request
        assert "theirs" not in answer.body


def test_one_connection_serves_several_sessions_with_the_cookies_of_each(gateway: RunningGateway) -> None:
    mine = f"a=mine; {by_path(gateway)}"
    theirs = f"a=theirs; __Secure-backendai-{OTHER_ID}={gateway.token(OTHER_ID)}"
    requests = [
        head(f"/s/{NAME}/web/", Cookie=mine),
        head(f"/s/{OTHER}/web/", Cookie=theirs),
        head(f"/s/{NAME}/web/", Cookie=mine),
        head(f"/s/{NAME}/web/", Cookie=mine),
        head(f"/s/{NAME}/web/", Authorization=bearer(gateway)),
        head(f"/s/{NAME}/web/", Authorization=bearer(gateway), Cookie="b=1"),
    ]
    answers = [received(answer) for answer in ask(gateway, *requests)]
    assert [answer["app"] for answer in answers] == ["mine", "theirs", "mine", "mine", "mine", "mine"]
    cookies = [answer["headers"].get("cookie") for answer in answers]
    assert cookies == ["a=mine", "a=theirs", "a=mine", "a=mine", None, "b=1"]
    assert not [answer for answer in answers if "authorization" in answer["headers"]]


@pytest.mark.parametrize("browser", [{}, {"Sec-Fetch-Site": "same-origin"}], ids=["a program", "a browser"])
def test_a_token_that_expires_within_a_connection_is_refused(gateway: RunningGateway, browser: dict[str, str]) -> None:
    async def wait() -> list[Answer]:
        token = gateway.token(seconds=2)
        request = head(f"/s/{NAME}/web/", Authorization=f"Bearer {token}", **browser)
        return await asyncio.wait_for(gateway.send_while_answered(request), 30)

    first, *_others, last = run(gateway, wait)
    assert (first.status, last.status) == (200, 403)
    assert "The token has expired. Open a new link to this session" in last.body


@pytest.mark.parametrize("before", [True, False])
def test_a_cookie_of_the_same_name_neither_replaces_nor_hides_that_of_the_gateway(
    gateway: RunningGateway, before: bool
) -> None:
    good, junk = by_path(gateway), f"__Secure-backendai-{SESSION_ID}=eyJ.eyJ.x"
    cookies = f"{junk}; a=1; {good}" if before else f"{good}; a=1; {junk}"
    (answer,) = ask(gateway, head(f"/s/{NAME}/web/", Cookie=cookies))
    assert received(answer)["headers"]["cookie"] == "a=1"


def test_headers_that_imitate_those_of_the_gateway_are_dropped(gateway: RunningGateway) -> None:
    fields = "X_Forwarded_For: 1.2.3.4\r\nX-Forwarded-Host: evil\r\nForwarded: for=1\r\nx_forwarded_user: root"
    (answer,) = ask(gateway, f"{head(f'/s/{NAME}/web/', Authorization=bearer(gateway))}\r\n{fields}")
    headers = received(answer)["headers"]
    assert headers["x-forwarded-for"] == headers["x-forwarded-host"] == ADDRESS
    assert not {"x_forwarded_for", "x_forwarded_user", "forwarded"} & headers.keys()


SOCKET = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "x3JJHMbDL1EzLkh9GBhXDw==",
}
FOREIGN_PAGES: dict[str, dict[str, str]] = {
    "image": {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"},
    "frame": {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
    "script": {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "script"},
    "fetch": {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"},
    "object": {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "object"},
    "events": {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "eventSource"},
    "unknown": {"Sec_Fetch_Site": "any", "Sec_Fetch_Mode": "any", "Sec_Fetch_Dest": "any"},
    "old browser": {"Origin": "https://other-user--web.apps.example.org"},
    "sandbox": {"Origin": "null"},
    "socket": {"Origin": "https://evil.example", **SOCKET},
    "new socket": {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "websocket", "Sec_Fetch_Dest": "websocket"},
}
OWN_PAGES: dict[str, dict[str, str]] = {
    "page": {"Sec_Fetch_Site": "same-origin", "Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"},
    "address": {"Sec_Fetch_Site": "none", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"},
    "link": {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"},
    "no referrer": {"Sec_Fetch_Site": "same-origin", "Origin": "null"},
    "program": {},
    "old browser": {"Origin": f"https://{WEB}"},
}


@pytest.mark.parametrize("kind", FOREIGN_PAGES)
@pytest.mark.parametrize("after", [True, False])
def test_requests_of_pages_of_other_origins_get_nothing(gateway: RunningGateway, kind: str, after: bool) -> None:
    hostile = head("/", host=WEB, Cookie=by_host(gateway), **FOREIGN_PAGES[kind])
    warm = [head("/", host=WEB, Cookie=by_host(gateway))] if after else []
    answer = ask(gateway, *warm, hostile)[-1]
    assert (answer.status, "mine" in answer.body) == (403, False)
    assert "The request comes from another site." in answer.body
    # A token in a header is no cookie that a browser adds.
    fields = {name: value for name, value in FOREIGN_PAGES[kind].items() if name not in SOCKET}
    (program,) = ask(gateway, head("/", host=WEB, Authorization=bearer(gateway), **fields))
    assert program.status == 200


@pytest.mark.parametrize("kind", OWN_PAGES)
def test_requests_of_the_own_page_and_links_are_answered(gateway: RunningGateway, kind: str) -> None:
    (answer,) = ask(gateway, head("/", host=WEB, Cookie=by_host(gateway), **OWN_PAGES[kind]))
    assert received(answer)["app"] == "mine"


def test_a_form_of_another_site_is_refused_although_it_navigates(gateway: RunningGateway) -> None:
    form = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    (answer,) = ask(gateway, head("/", "POST", host=WEB, Cookie=by_host(gateway), Content_Length="0", **form))
    assert answer.status == 403


def test_service_workers_are_refused_by_path_only(gateway: RunningGateway) -> None:
    fields = {"Service_Worker": "script", "Sec_Fetch_Site": "same-origin"}
    for app in ("web", "notebook"):
        (answer,) = ask(gateway, head(f"/s/{NAME}/{app}/sw.js", Cookie=by_path(gateway), **fields))
        assert answer.status == 403
        assert "Service workers need a link by host name." in answer.body
    (by_name,) = ask(gateway, head("/sw.js", host=WEB, Cookie=by_host(gateway), **fields))
    assert received(by_name)["path"] == "/sw.js"


@pytest.mark.parametrize(
    ("path", "host"), [(f"/s/{NAME}/web/", ADDRESS), (f"/s/{NAME}/notebook/", ADDRESS), ("/", WEB)]
)
def test_answers_are_for_pages_of_their_own_origin(gateway: RunningGateway, path: str, host: str) -> None:
    wanted = {
        "Want_Service_Worker_Allowed": "/",
        "Want_Clear_Site_Data": '"cookies"',
        "Want_Cross_Origin_Resource_Policy": "cross-origin",
        "Want_Content_Security_Policy": "default-src 'self'",
    }
    (answer,) = ask(gateway, head(path, host=host, Authorization=bearer(gateway), **wanted))
    assert answer.status == 200
    assert not {"service-worker-allowed", "clear-site-data", "strict-transport-security"} & answer.headers.keys()
    assert answer.header("cross-origin-resource-policy") == "same-origin"
    assert answer.headers["content-security-policy"] == ["default-src 'self'", "frame-ancestors 'self'"]


REDIRECTS = [
    ("/x,y?z", "{prefix}/x,y?z"),
    ("{prefix}/x", "{prefix}/x"),
    ("http://{host}/x", "{prefix}/x"),
    ("https://{host}", "{prefix}/"),
    ("//elsewhere.example/x", "//elsewhere.example/x"),
    ("https://elsewhere.example/x", "https://elsewhere.example/x"),
    ("http://main1:8888/lab", "http://main1:8888/lab"),
    ("x/y", "x/y"),
    (f"/s/{OTHER}/web/", f"{{prefix}}/s/{OTHER}/web/"),
]


@pytest.mark.parametrize(("location", "expected"), REDIRECTS)
def test_redirects_of_an_app_stay_with_it(gateway: RunningGateway, location: str, expected: str) -> None:
    for path, host, prefix in ((f"/s/{NAME}/web/", ADDRESS, f"/s/{NAME}/web"), ("/", WEB, "")):
        texts = [text.format(prefix=prefix, host=host) for text in (location, expected)]
        (answer,) = ask(gateway, head(path, host=host, Authorization=bearer(gateway), Want_Location=texts[0]))
        assert answer.header("location") == texts[1]


COOKIES = [
    ("a=b; Path=/; Domain=example.org; Secure", "a=b; Path={prefix}/; Secure"),
    ("a=b; Path=/x; Path=/", "a=b; Path=/x; Path={prefix}/"),
    ("a=b", "a=b"),
    ("a=b; Path =/x; HttpOnly", "a=b; Path ={prefix}/x; HttpOnly"),
    ("a=b; Domain =x.example; Domain= y.example", "a=b"),
    (f"__Secure-backendai-{OTHER_ID}=own; Path=/", "backendai_of_app="),
    ("__Host-backendai=own; Path=/; Secure", "backendai_of_app="),
    ("= __Host-backendai=own", "backendai_of_app="),
]


@pytest.mark.parametrize(("cookie", "expected"), COOKIES)
def test_cookies_of_an_app_stay_with_it(gateway: RunningGateway, cookie: str, expected: str) -> None:
    places = [(f"/s/{NAME}/{app}/", ADDRESS, f"/s/{NAME}/{app}") for app in ("web", "notebook")]
    for path, host, prefix in (*places, ("/", WEB, "")):
        (answer,) = ask(gateway, head(path, host=host, Authorization=bearer(gateway), Want_Set_Cookie=cookie))
        assert answer.header("set-cookie") == expected.format(prefix=prefix)


def test_a_cookie_for_the_path_of_another_session_gets_the_own_one(gateway: RunningGateway) -> None:
    cookie = f"a=b; path=/s/{OTHER}/web/x"
    for app in ("web", "notebook"):
        path = f"/s/{NAME}/{app}/"
        (answer,) = ask(gateway, head(path, Authorization=bearer(gateway), Want_Set_Cookie=cookie))
        assert answer.header("set-cookie") == f"a=b; path=/s/{NAME}/{app}/x"


@pytest.mark.parametrize(
    "path", ["/", "/s/", f"/s/{NAME}/", f"/s/{NAME}/nothing/", f"//s/{NAME}/web/", "/s/nobody/web/"]
)
def test_what_does_not_exist_is_said_in_a_page_or_in_json(gateway: RunningGateway, path: str) -> None:
    page, data = ask(gateway, head(path), head(path, Accept="text/x, application/json"))
    sentence = "There is no such session or app. The session may have ended."
    assert (page.status, data.status) == (404, 404)
    assert "<!DOCTYPE html>" in page.body
    assert sentence in page.body
    assert json.loads(data.body) == {"error": sentence}


def test_an_app_that_does_not_listen_yet_has_a_page_and_then_answers(gateway: RunningGateway) -> None:
    async def listen_late() -> list[Answer]:
        request = head(f"/s/{NAME}/down/", Authorization=bearer(gateway))
        early = [await gateway.send(request), await gateway.send(f"{request}\r\nAccept: application/json")]
        app = await asyncio.start_server(partial(serve, "late"), ADDRESS, gateway.unused_port)
        async with app:
            return [*early, await gateway.send(request)]

    page, data, answer = run(gateway, listen_late)
    assert (page.status, data.status) == (503, 503)
    assert "It may still be starting: try again in a moment." in page.body
    assert f"the app {NAME}/down, but it does not answer" in json.loads(data.body)["error"]
    assert received(answer)["app"] == "late"


def test_headers_without_end_get_a_page_and_bodies_without_end_pass(gateway: RunningGateway) -> None:
    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        endless = b"GET /body" in await _reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\n" + (b"\r\n" if endless else b""))
            for _part in range(100):
                writer.write(b"X-Header: " + b"x" * 100_000 + (b"" if endless else b"\r\n"))
                await writer.drain()
        writer.close()

    async def ask_for_both() -> tuple[Answer, int, Answer]:
        async with await asyncio.start_server(flood, ADDRESS, gateway.unused_port):
            headers = await gateway.send(head(f"/s/{NAME}/down/headers", Authorization=bearer(gateway)))
            reader, writer = await gateway.connect(ADDRESS)
            writer.write(f"{head(f'/s/{NAME}/down/body', Authorization=bearer(gateway))}\r\n\r\n".encode())
            size = len(await asyncio.wait_for(reader.readexactly(5_000_000), 60))
            writer.transport.abort()
        return headers, size, await gateway.send(head(f"/s/{NAME}/web/", Authorization=bearer(gateway)))

    headers, size, others = run(gateway, ask_for_both)
    assert headers.status == 502
    assert "The app sent an invalid response" in headers.body
    assert size == 5_000_000
    assert received(others)["app"] == "mine"


def test_a_websocket_opens_by_cookie_by_path_and_by_host_name(gateway: RunningGateway) -> None:
    for path, host, cookie in ((f"/s/{NAME}/web/ws", ADDRESS, by_path(gateway)), ("/ws", WEB, by_host(gateway))):
        request = head(path, host=host, Cookie=cookie, Origin=f"https://{host}", **SOCKET)

        async def talk(request: str = request) -> bytes:
            reader, writer = await gateway.connect(ADDRESS)
            writer.write(f"{request}\r\n\r\n".encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            writer.write(b"\x81\x85\0\0\0\0hello")
            echoed = await asyncio.wait_for(reader.readexactly(7), 60)
            writer.transport.abort()
            return echoed

        assert run(gateway, talk) == b"\x81\x05hello"


@pytest.mark.parametrize("value", [False, "False", True, "true"])
def test_requests_that_only_repeat_a_proof_are_logged_if_they_fail_or_on_demand(
    tmp_path: Path, value: bool | str
) -> None:
    gateway = RunningGateway(tmp_path, log_all_requests=value)
    cookie = by_path(gateway)
    paths = [f"/s/{NAME}/{rest}" for rest in ("web/first", "web/again", "web/status/404", "notebook/first")]
    with gateway.running():
        answers = ask(gateway, *(head(path, Cookie=cookie) for path in (*paths, "/refused")))
        logged = gateway.logged_paths("/refused")
    assert [answer.status for answer in answers] == [200, 200, 404, 200, 404]
    again = [] if str(value) == "False" else [paths[1]]
    assert logged == [paths[0], *again, *paths[2:], "/refused"]


def test_links_by_path_can_be_switched_off_on_the_command_line(tmp_path: Path) -> None:
    gateway = RunningGateway(tmp_path, domain=DOMAIN, path_links="false")
    with gateway.running():
        (answer,) = ask(gateway, head(f"/s/{NAME}/web/", Authorization=bearer(gateway)))
    assert answer.status == 404


def test_options_switch_links_by_path_off_and_let_a_page_frame_apps(tmp_path: Path) -> None:
    portal = "https://portal.example.org"
    options = {"domain": DOMAIN, "path_links": False, "frame_ancestors": portal, "certificate": "given.pem"}
    gateway = RunningGateway(tmp_path, **options)
    frame = {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}
    with gateway.running():
        missing, framed, image = ask(
            gateway,
            head(f"/s/{NAME}/web/", Authorization=bearer(gateway)),
            head("/", host=WEB, Cookie=by_host(gateway), **frame),
            head("/", host=WEB, Cookie=by_host(gateway), **FOREIGN_PAGES["image"]),
        )
    assert (missing.status, framed.status, image.status) == (404, 200, 403)
    assert framed.header("content-security-policy") == f"frame-ancestors 'self' {portal}"
    assert framed.header("strict-transport-security") == "max-age=31536000"


@pytest.mark.parametrize("host", [ADDRESS, WEB])
@pytest.mark.parametrize("accept", ["text/html", "application/json"])
def test_cookies_that_lock_a_user_out_are_removed_after_which_the_app_opens(
    gateway: RunningGateway, host: str, accept: str
) -> None:
    # Finding 16: a page of another app has set them for the whole site.
    path = f"/s/{NAME}/web/" if host == ADDRESS else "/"
    junk = "; ".join(f"junk{number}={'x' * 3000}" for number in range(6))
    own = by_path(gateway) if host == ADDRESS else by_host(gateway)
    heads = [head(path, host=host, Accept=accept, Cookie=cookies) for cookies in (f"{own}; {junk}", own)]
    locked, cleared = ask(gateway, *heads)
    assert (locked.status, locked.header("clear-site-data")) == (431, '"cookies"')
    assert "Your browser sent more cookies than an app can take" in locked.body
    assert received(cleared)["path"] == "/"


def test_cookies_that_an_app_takes_arrive(gateway: RunningGateway) -> None:
    junk = "; ".join(f"junk{number}={'x' * 1000}" for number in range(10))
    (answer,) = ask(gateway, head(f"/s/{NAME}/web/", Cookie=f"{by_path(gateway)}; {junk}"))
    assert received(answer)["headers"]["cookie"] == junk
