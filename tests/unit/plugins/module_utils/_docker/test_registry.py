"""Asking real registries on loopback who may read an image."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._docker import registry
from ansible_collections.backendai.cluster.plugins.module_utils._docker.registry import (
    MAX_ANSWER_BYTES,
    RegistryConnections,
    RegistryError,
    agent_login,
    may_read,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.images import TOKEN_USERNAME, Credential
from tests.unit.builders import DIGEST
from tests.unit.registry_server import (
    IDENTITY_TOKEN,
    REPOSITORY,
    TOKEN,
    RegistryServer,
    basic,
    reply,
    replying,
    server_certificate,
)

#: As engines connect to registries on loopback.
LOOPBACK = RegistryConnections(insecure_networks=("127.0.0.0/8",))
READER, STRANGER = Credential("reader", "hunter2"), Credential("reader", "wrong")
MANIFEST = f"/v2/{REPOSITORY}/manifests/1"
Answer = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    """Return a registry that requires a token."""
    with RegistryServer("Bearer").running() as running:
        yield running


def ask(server: RegistryServer, credential: Credential | None = READER, *references: str, seconds: float = 30) -> bool:
    return may_read(LOOPBACK, server.repository, references or ("1",), credential, seconds)


def problem_of(server: RegistryServer, credential: Credential | None = READER, seconds: float = 30) -> str:
    with pytest.raises(RegistryError) as raised:
        ask(server, credential, seconds=seconds)
    return str(raised.value)


# ---- logins


@pytest.mark.parametrize("scheme", ["Basic", "Bearer"])
@pytest.mark.parametrize(
    ("credential", "allowed"), [(READER, True), (STRANGER, False), (None, False)], ids=["right", "wrong", "none"]
)
def test_private_image_is_for_the_right_password(scheme: str, credential: Credential | None, allowed: bool) -> None:
    with RegistryServer(scheme).running() as server:
        assert ask(server, credential) is allowed


@pytest.mark.parametrize("credential", [READER, STRANGER, None])
def test_public_image_is_for_everybody_and_no_password_is_sent(credential: Credential | None) -> None:
    with RegistryServer().running() as server:
        assert ask(server, credential)
        assert [(each.method, each.path, each.authorization) for each in server.requests] == [
            ("GET", "/v2/", ""),
            ("HEAD", MANIFEST, ""),
        ]


def test_password_is_sent_to_the_token_server_only(server: RegistryServer) -> None:
    assert ask(server)
    sent = {each.path.partition("?")[0]: each.authorization for each in server.requests}
    assert sent == {"/v2/": "", "/token": basic("reader", "hunter2"), MANIFEST: f"Bearer {TOKEN}"}


def test_identity_token_is_exchanged_for_a_token(server: RegistryServer) -> None:
    assert ask(server, Credential(TOKEN_USERNAME, IDENTITY_TOKEN))
    assert not ask(server, Credential(TOKEN_USERNAME, "another"))
    assert [each.method for each in server.requests if each.path == "/token"] == ["POST", "POST"]


def test_identity_token_is_no_password() -> None:
    with RegistryServer("Basic").running() as server:
        assert not ask(server, Credential(TOKEN_USERNAME, IDENTITY_TOKEN))
        assert {each.authorization for each in server.requests} == {""}


def test_challenge_of_an_unknown_kind_is_an_error(server: RegistryServer) -> None:
    server.special["/v2/"] = replying(401, headers={"WWW-Authenticate": "Negotiate"})
    assert problem_of(server) == "requires a login of a kind that is not supported"


def test_tag_is_asked_for_if_the_digest_is_gone(server: RegistryServer) -> None:
    assert ask(server, READER, DIGEST, "1")
    assert [each.path.rpartition("/")[2] for each in server.requests[2:]] == [DIGEST, "1"]
    assert not ask(server, READER, DIGEST, "2")
    server.references = {DIGEST}
    assert ask(server, READER, DIGEST, "2")


def test_docker_hub_has_another_host(monkeypatch: pytest.MonkeyPatch, server: RegistryServer) -> None:
    monkeypatch.setattr(registry, "HUB_HOST", server.host)
    connections = RegistryConnections(insecure_hosts=frozenset({"docker.io"}))
    assert may_read(connections, f"docker.io/{REPOSITORY}", ["1"], READER, 30)


# ---- statuses


@pytest.mark.parametrize("status", [401, 403, 404])
@pytest.mark.parametrize("path", [MANIFEST, "/token"])
def test_refusal_is_an_answer(server: RegistryServer, path: str, status: int) -> None:
    server.special[path] = replying(status)
    if (path, status) == ("/token", 404):
        assert problem_of(server) == "has a token server that answers with status 404"
    else:
        assert not ask(server)


@pytest.mark.parametrize("status", [405, 429, 500, 503])
@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/v2/", "answers with status {}"),
        (MANIFEST, "answers with status {}"),
        ("/token", "has a token server that answers with status {}"),
    ],
)
def test_error_is_no_answer(server: RegistryServer, path: str, problem: str, status: int) -> None:
    server.special[path] = replying(status, b"\x1b[2Jsecret")
    assert problem_of(server) == problem.format(status)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"null",
        b'{"token": 1}',
        b'{"token": "a\\r\\nX: y"}',
        b'{"tokens": "a"}',
        b"\xff",
        b'{"token": ""}',
        b"[" * 100_000,
    ],
)
def test_answer_without_a_token_is_an_error(server: RegistryServer, content: bytes) -> None:
    server.special["/token"] = replying(200, content)
    assert problem_of(server) == "has a token server that answers without a token"


@pytest.mark.parametrize("realm", ["file:///etc/passwd", "ftp://127.0.0.1/token", "", "/token"])
def test_token_server_without_http_is_an_error(server: RegistryServer, realm: str) -> None:
    server.realm = realm
    assert problem_of(server) == "names a token server that is not reached over https or http"


# ---- bounded size and time


def endless(handler: BaseHTTPRequestHandler) -> None:
    """Send content as long as somebody reads."""
    handler.send_response(200)
    handler.end_headers()
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(b" " * 65536)


def dribbling(handler: BaseHTTPRequestHandler) -> None:
    """Send a header, byte by byte."""
    with contextlib.suppress(OSError):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            handler.wfile.write(b"x")
            time.sleep(0.05)


def slow_content(handler: BaseHTTPRequestHandler) -> None:
    """Send the content byte by byte."""
    handler.send_response(200)
    handler.end_headers()
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.05)


def test_endless_answer_of_a_token_server_is_cut(server: RegistryServer) -> None:
    server.special["/token"] = endless
    assert problem_of(server) == f"has a token server that answers with more than {MAX_ANSWER_BYTES >> 10} kB"


def test_content_of_a_registry_is_not_read(server: RegistryServer) -> None:
    server.special["/v2/"] = endless
    assert ask(server)


@pytest.mark.parametrize("path", ["/v2/", MANIFEST, "/token"])
def test_slow_answer_has_a_time_limit(server: RegistryServer, path: str) -> None:
    server.special[path] = dribbling
    began = time.monotonic()
    assert problem_of(server, seconds=0.5) == "does not answer within 0.5 seconds"
    assert time.monotonic() - began < 5


def test_slow_content_of_a_token_server_has_a_time_limit(server: RegistryServer) -> None:
    server.special["/token"] = slow_content
    assert problem_of(server, seconds=0.5) == "does not answer within 0.5 seconds"


def test_silence_has_a_time_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(RegistryError) as raised:
        may_read(LOOPBACK, f"127.0.0.1:{silent.getsockname()[1]}/{REPOSITORY}", ["1"], READER, 0.5)
    assert str(raised.value) == "does not answer within 0.5 seconds"


def test_refused_connection_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        host = f"127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(RegistryError, match=r"^does not answer \(Connection refused\)$"):
        may_read(LOOPBACK, f"{host}/{REPOSITORY}", ["1"], READER, 30)


def test_text_of_something_else_is_not_quoted() -> None:
    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listener.accept()[0]
                connection.sendall(b"SSH-2.0-\x1b[2Jsecret\r\n")
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        with pytest.raises(RegistryError) as raised:
            may_read(LOOPBACK, f"127.0.0.1:{listener.getsockname()[1]}/{REPOSITORY}", ["1"], READER, 30)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)
    assert str(raised.value).startswith("does not answer (")
    assert "secret" not in str(raised.value)


# ---- anything at all


def raw_answers(listener: socket.socket, answers: list[bytes]) -> None:
    """Answer each connection with the next of these bytes, and the last ones with the last."""
    with contextlib.suppress(OSError):
        for number in range(1000):
            connection = listener.accept()[0]
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                connection.sendall(answers[min(number, len(answers) - 1)])


HEADERS = st.sampled_from(
    [
        'WWW-Authenticate: Bearer realm="http://{host}/token",service="s"',
        'WWW-Authenticate: Bearer realm="http://{host}:x/"',
        'WWW-Authenticate: Bearer realm="http://[/"',
        'WWW-Authenticate: Bearer realm="http:///\x00"',
        "WWW-Authenticate: Basic",
        "WWW-Authenticate:",
        "Location: http://{host}/x",
        "Location: http://{host}:99999999/",
        "Location: \x1b[2J",
        "Transfer-Encoding: chunked",
        "Content-Length: -1",
        "Content-Length: 5",
        "no header",
    ]
)
BODIES = st.one_of(
    st.binary(max_size=50), st.sampled_from([b'{"token": "a"}', b'{"token": {}}', b"5\r\nhello\r\n0\r\n\r\n"])
)
ANSWERS = st.one_of(
    st.binary(max_size=100),
    st.builds(
        lambda status, headers, body: "\r\n".join([f"HTTP/1.1 {status} x", *headers, "", ""]).encode("latin-1") + body,
        st.sampled_from([*[200, 401, 403, 404] * 5, 100, 204, 301, 302, 307, 308, 500, 0, 99999, "x"]),
        st.lists(HEADERS, max_size=3),
        BODIES,
    ),
)


@given(answers=st.lists(ANSWERS, min_size=1, max_size=6), login=st.sampled_from([None, READER]))
def test_whatever_a_registry_answers_is_a_permission_a_refusal_or_one_phrase(
    answers: list[bytes], login: Credential | None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        # Without TLS, so that each of the answers is read.
        sent = [b"", *(answer.replace(b"{host}", host.encode()) for answer in answers)]
        thread = threading.Thread(target=raw_answers, args=(listener, sent), daemon=True)
        thread.start()
        problem = ""
        try:
            may_read(LOOPBACK, f"{host}/{REPOSITORY}", ["1", DIGEST], login, 10)
        except RegistryError as error:
            problem = str(error)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)
    assert problem.isprintable()
    assert not re.search(r"hunter2|within", problem)


# ---- redirects


@pytest.mark.parametrize("scheme", ["Basic", "Bearer"])
@pytest.mark.parametrize("status", [301, 302, 303, 307])
def test_redirect_gets_no_login(scheme: str, status: int) -> None:
    with RegistryServer(scheme).running() as server, RegistryServer().running() as other:
        server.special[MANIFEST] = replying(status, headers={"Location": f"http://{other.host}{MANIFEST}"})
        assert ask(server)
        assert [(each.method, each.path, each.authorization) for each in other.requests] == [("HEAD", MANIFEST, "")]


def test_redirect_to_somebody_who_wants_a_login_is_a_refusal(server: RegistryServer) -> None:
    with RegistryServer("Basic").running() as other:
        server.special[MANIFEST] = replying(307, headers={"Location": f"http://{other.host}{MANIFEST}"})
        assert not ask(server)
        assert {each.authorization for each in other.requests} == {""}


@pytest.mark.parametrize("path", ["/v2/", "/token"])
def test_only_requests_for_manifests_follow_redirects(server: RegistryServer, path: str) -> None:
    with RegistryServer().running() as other:
        server.special[path] = replying(307, headers={"Location": f"http://{other.host}/token"})
        assert problem_of(server).endswith("answers with status 307")
        assert other.requests == []


def test_redirects_end(server: RegistryServer) -> None:
    server.special[MANIFEST] = lambda handler: reply(handler, 302, headers={"Location": f"{handler.path}x"})
    assert problem_of(server) == "answers with status 302"
    assert len(server.requests) < 10


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1:1/x", "http://[", "//\x00"])
def test_redirect_to_another_scheme_is_an_error(server: RegistryServer, location: str) -> None:
    server.special[MANIFEST] = replying(302, headers={"Location": location})
    problem_of(server)


# ---- TLS, proxies


@pytest.fixture
def tls_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    """Return a registry with a certificate that only the engine's folder of certificates can make valid."""
    monkeypatch.setattr(registry, "CERTIFICATES", tmp_path / "certs.d")
    _certificate, context = server_certificate(tmp_path)
    with RegistryServer("Bearer", context).running() as server:
        yield server


def trust(tmp_path: Path, server: RegistryServer) -> None:
    folder = tmp_path / "certs.d" / server.host
    folder.mkdir(parents=True)
    (folder / "ca.crt").write_bytes((tmp_path / "server.crt").read_bytes())


def test_unknown_certificate_gets_no_request(tls_server: RegistryServer) -> None:
    with pytest.raises(
        RegistryError, match=r"^does not answer \(its certificate is not valid: self.signed certificate"
    ):
        may_read(RegistryConnections(), tls_server.repository, ["1"], READER, 30)
    assert tls_server.requests == []


def test_certificate_of_the_engine_is_valid(tmp_path: Path, tls_server: RegistryServer) -> None:
    trust(tmp_path, tls_server)
    assert may_read(RegistryConnections(), tls_server.repository, ["1"], READER, 30)
    assert not may_read(RegistryConnections(), tls_server.repository, ["1"], STRANGER, 30)


def test_certificate_of_an_insecure_registry_is_not_verified(tls_server: RegistryServer) -> None:
    assert ask(tls_server)


def test_secure_registry_is_not_asked_over_plain_http(server: RegistryServer) -> None:
    with pytest.raises(RegistryError, match=r"^does not answer \("):
        may_read(RegistryConnections(), server.repository, ["1"], READER, 30)
    assert all(each.path != "/v2/" for each in server.requests)


def test_secure_registry_redirects_to_no_plain_http(tmp_path: Path, tls_server: RegistryServer) -> None:
    trust(tmp_path, tls_server)
    tls_server.special[MANIFEST] = replying(307, headers={"Location": f"http://{tls_server.host}{MANIFEST}"})
    with pytest.raises(RegistryError, match=r"^redirects to an address that is not reached over https$"):
        may_read(RegistryConnections(), tls_server.repository, ["1"], READER, 30)


def test_secure_registry_names_no_token_server_without_tls(tmp_path: Path, tls_server: RegistryServer) -> None:
    trust(tmp_path, tls_server)
    with RegistryServer("Bearer").running() as other:
        tls_server.realm = other.realm
        with pytest.raises(RegistryError, match=r"^names a token server that is not reached over https$"):
            may_read(RegistryConnections(), tls_server.repository, ["1"], READER, 30)
        assert other.requests == []


def test_proxy_of_the_engine_is_used(server: RegistryServer) -> None:
    server.scheme = ""
    server.special[f"http://registry.test{MANIFEST}"] = replying(200)
    server.special["http://registry.test/v2/"] = replying(200)
    proxy = f"http://{server.host}"
    connections = RegistryConnections(frozenset({"registry.test"}), proxies={"http": proxy, "https": proxy})
    assert may_read(connections, f"registry.test/{REPOSITORY}", ["1"], None, 30)
    assert [each.method for each in server.requests] == ["CONNECT", "GET", "HEAD"]


def test_text_of_a_proxy_is_printable(server: RegistryServer) -> None:
    def refuse(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(407, "\x1b[2Jno")
        handler.end_headers()

    server.special["registry.test:443"] = refuse
    connections = RegistryConnections(proxies={"https": f"http://{server.host}"})
    with pytest.raises(RegistryError) as raised:
        may_read(connections, f"registry.test/{REPOSITORY}", ["1"], None, 30)
    assert str(raised.value) == "does not answer (Tunnel connection failed: 407 [2Jno)"


@pytest.mark.parametrize(
    ("host", "direct"),
    [
        ("registry.test", True),
        ("a.registry.test", True),
        ("aregistry.test", False),
        ("deep.example.com", True),
        ("10.1.2.3", True),
        ("11.1.2.3", False),
        ("127.0.0.1", True),
        ("localhost", True),
    ],
)
def test_hosts_without_a_proxy(host: str, direct: bool) -> None:
    connections = RegistryConnections(proxies={"https": "p"}, no_proxy="registry.test, .example.com,10.0.0.0/8,")
    assert (connections.proxies_to(host) == {}) is direct


def test_connections_are_those_of_the_engine() -> None:
    class Engine:
        def info(self) -> dict[str, Any]:
            indexes = {"docker.io": {"Secure": True}, "lab:5000": {"Secure": False}}
            config = {"InsecureRegistryCIDRs": ["127.0.0.0/8"], "IndexConfigs": indexes}
            return {"RegistryConfig": config, "HttpsProxy": "http://proxy:3128", "HttpProxy": "", "NoProxy": "a,b"}

    engine: Any = Engine()
    connections = RegistryConnections.of_engine(engine)
    assert connections == RegistryConnections(
        frozenset({"lab:5000"}), frozenset({"docker.io"}), ("127.0.0.0/8",), {"https": "http://proxy:3128"}, "a,b"
    )
    hosts = ["docker.io", "lab:5000", "127.0.0.2:5000", "[::1]:5000", "192.0.2.1", "no-such-host.invalid"]
    assert [connections.is_insecure(host) for host in hosts] == [False, True, True, False, False, False]


def test_engine_without_such_settings_has_none() -> None:
    class Engine:
        def info(self) -> dict[str, Any]:
            return {"RegistryConfig": None}

    engine: Any = Engine()
    assert RegistryConnections.of_engine(engine) == RegistryConnections()


# ---- the login of the agent


def log_in(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))


AUTH = base64.b64encode(b"root:secret").decode()


@pytest.mark.parametrize(
    ("registry_host", "login"),
    [
        ("registry.test:5000", Credential("root", "secret")),
        ("docker.io", Credential("root", "secret")),
        ("azure.test", Credential(TOKEN_USERNAME, "an-identity-token")),
        ("other.test", None),
    ],
)
def test_login_of_the_agent_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, registry_host: str, login: Credential | None
) -> None:
    azure = {"auth": base64.b64encode(b"00000000:").decode(), "identitytoken": "an-identity-token"}
    hosts = {"registry.test:5000": {"auth": AUTH}, "https://index.docker.io/v1/": {"auth": AUTH}, "azure.test": azure}
    log_in(monkeypatch, tmp_path, json.dumps({"auths": hosts}))
    assert agent_login(registry_host) == login


def test_agent_without_logins_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    assert agent_login("registry.test") is None


@pytest.mark.parametrize("content", [{"auths": {"registry.test": "secret"}}, {"credsStore": "broken"}])
def test_unreadable_login_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: dict[str, Any]) -> None:
    log_in(monkeypatch, tmp_path, json.dumps(content))
    (tmp_path / "docker-credential-broken").write_text("#!/bin/sh\necho secret; exit 1\n")
    (tmp_path / "docker-credential-broken").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(RegistryError) as raised:
        agent_login("registry.test")
    assert str(raised.value) == "cannot be asked, because the docker login of this host cannot be read"
