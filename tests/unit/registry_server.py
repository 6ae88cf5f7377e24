"""A small image registry on loopback, with a token server, that notes what it is asked."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

REPOSITORY = "team/private"
LOGINS = {"reader": "hunter2"}
TOKEN = "a-token"
EMPTY: Mapping[str, str] = MappingProxyType({})
IDENTITY_TOKEN = "an-identity-token"


class Asked(NamedTuple):
    """A request to the server."""

    method: str
    path: str
    authorization: str
    body: str = ""


class RegistryServer:
    """A registry with one repository; ``references`` are its tags and digests.

    ``scheme`` is how it requires a login: ``Basic``, ``Bearer``, or not at all if empty. ``special`` has functions that
    answer the requests for some paths, by the beginning of the path. ``requests`` are all requests so far.
    """

    def __init__(self, scheme: str = "", context: ssl.SSLContext | None = None) -> None:
        self.scheme, self.references = scheme, {"1"}
        self.requests: list[Asked] = []
        self.special: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {}
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                registry.answer(self)

            def do_HEAD(self) -> None:
                registry.answer(self)

            def do_POST(self) -> None:
                registry.answer(self)

            def do_CONNECT(self) -> None:
                registry.answer(self)

            def log_message(self, *_said: object) -> None:
                """Suppress the log."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_about: object) -> None:
                """Ignore clients that hang up."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if context:
            listener = self._server.socket
            self._server.socket = context.wrap_socket(listener, server_side=True, do_handshake_on_connect=False)
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self.realm = f"{'https' if context else 'http'}://{self.host}/token"

    @property
    def repository(self) -> str:
        """The full name of the repository."""
        return f"{self.host}/{REPOSITORY}"

    @contextlib.contextmanager
    def running(self) -> Iterator[RegistryServer]:
        """Serve in a thread."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer a request."""
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0)).decode()
        asked = Asked(handler.command, handler.path, handler.headers.get("Authorization") or "", body)
        self.requests.append(asked)
        for beginning, function in self.special.items():
            if handler.path.startswith(beginning):
                function(handler)
                return
        if handler.path.startswith("/token"):
            self._give_token(handler, asked)
        elif not self._is_authorized(asked.authorization):
            bearer = f'Bearer realm="{self.realm}",service="registry.test",scope="repository:other:push"'
            challenge = bearer if self.scheme == "Bearer" else 'Basic realm="all"'
            reply(handler, 401, headers={"WWW-Authenticate": challenge})
        elif handler.path == "/v2/":
            reply(handler, 200)
        else:
            known = [f"/v2/{REPOSITORY}/manifests/{reference}" for reference in self.references]
            reply(handler, 200 if handler.path in known else 404)

    def _is_authorized(self, authorization: str) -> bool:
        if self.scheme == "Basic":
            return authorization in [basic(*login) for login in LOGINS.items()]
        return not self.scheme or authorization == f"Bearer {TOKEN}"

    def _give_token(self, handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        values = parse_qs(asked.body or urlsplit(asked.path).query)
        wanted = (values["service"], values["scope"]) == (["registry.test"], [f"repository:{REPOSITORY}:pull"])
        refreshed = values.get("grant_type") == ["refresh_token"] and values["refresh_token"] == [IDENTITY_TOKEN]
        allowed = refreshed or asked.authorization in [basic(*login) for login in LOGINS.items()]
        content = json.dumps({"access_token" if refreshed else "token": TOKEN}).encode()
        reply(handler, 200 if wanted and allowed else 401, content)


def basic(username: str, password: str) -> str:
    """Return the header of basic authentication."""
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"


def reply(
    handler: BaseHTTPRequestHandler, status: int, content: bytes = b"{}", headers: Mapping[str, str] = EMPTY
) -> None:
    """Send an answer; that of a HEAD request has no content."""
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(content)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(content)


def replying(
    status: int, content: bytes = b"{}", headers: Mapping[str, str] = EMPTY
) -> Callable[[BaseHTTPRequestHandler], None]:
    """Return a function that sends this answer."""
    return lambda handler: reply(handler, status, content, headers)


def server_certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return a certificate for 127.0.0.1 that signed itself, and the settings of a server that has it."""
    certificate, key = folder / "server.crt", folder / "server.key"
    options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=test"]
    files = ["-keyout", str(key), "-out", str(certificate), "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", "req", "-x509", *options, *files], check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, context
