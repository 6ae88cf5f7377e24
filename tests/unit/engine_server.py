"""A Docker engine's API on a real socket: an exec or a log prints what a test says, and may never end."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

from tests.unit.image_tree import ImageTree

Printer = Callable[[Callable[..., None], threading.Event], None]
"""Prints with its first argument, in frames of the engine, until it ends or the event says that the test has ended.

That argument takes a text, and the number of a stream, by default that of standard output.
"""


def says(text: bytes) -> Printer:
    """Return a printer of one text."""
    return lambda send, _over: send(text)


def says_and_hangs(text: bytes) -> Printer:
    """Return a printer that prints a text and never ends."""

    def print_then_wait(send: Callable[[bytes], None], over: threading.Event) -> None:
        send(text)
        over.wait()

    return print_then_wait


def never_stops(send: Callable[[bytes], None], over: threading.Event) -> None:
    """Print without end."""
    while not over.is_set():
        send(b"y\n" * 4096)


class _Handler(BaseHTTPRequestHandler):
    """A client of an engine."""

    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:
        engine, path = self.server.engine, self._asked_path()
        if self._is_silent(f"HEAD {path}"):
            return
        stat = engine.image.stat_header(path) if self._container() in engine.looks else None
        self._reply(b"", engine.statuses.get(path, 200 if stat else 404), {"X-Docker-Container-Path-Stat": stat or ""})

    def do_DELETE(self) -> None:
        engine = self.server.engine
        if self._is_silent("DELETE"):
            return
        engine.changed.append(f"DELETE {self.path}")
        found = "/networks/" in self.path or engine.looks.pop(self._container(), None) is not None
        self._reply(b"", 204) if found else self._reply({"message": "No such container"}, 404)

    def _archive(self) -> None:
        engine, path = self.server.engine, self._asked_path()
        if self._is_silent(f"GET {path}"):
            return
        archive = engine.image.archive(path)
        # Who has read enough closes the connection.
        with contextlib.suppress(OSError):
            self._reply(archive[: engine.archive_bytes], 200 if engine.image.look(path) else 404)

    def _asked_path(self) -> str:
        return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query)).get("path", "")

    def _container(self) -> str:
        """Return the name of the container that is asked about by its name or id."""
        return self.path.partition("/containers/")[2].partition("?")[0].partition("/")[0].removeprefix("id-")

    def _is_silent(self, request: str) -> bool:
        if request not in self.server.engine.silent:
            return False
        self.close_connection = True
        return self.server.engine.over.wait()

    def do_GET(self) -> None:
        path, _mark, query = self.path.partition("?")
        self.server.engine.asked.append((path, dict(urllib.parse.parse_qsl(query))))
        if self._is_silent(f"GET {path}"):
            return
        if path.endswith("/archive"):
            self._archive()
        elif "/gone/" in path:
            self._reply({"message": "no gone"}, 404)
        elif path.endswith("/broken/json"):
            self._reply({"message": "no broken"}, 500)
        elif path.endswith("/garbled/json"):
            self._reply("garbled", plain=True)
        elif path == "/_ping":
            self._reply("OK", headers={"Api-Version": "1.41"}, plain=True)
        elif path.endswith("/version"):
            self._reply({"ApiVersion": "1.41"})
        elif "/logs" in self.path:
            self._stream("200 OK", "Content-Type: application/vnd.docker.raw-stream\r\n")
        else:
            self._reply({"Id": "c", "Config": {"Tty": False}})

    def do_POST(self) -> None:
        engine, content = self.server.engine, self.rfile.read(int(self.headers["Content-Length"]))
        if self._is_silent("POST"):
            return
        body = json.loads(content or b"null")
        if "/gone/" in self.path:
            self._reply({"message": "no gone"}, 404)
        elif "/broken/" in self.path:
            engine.changed.append(f"POST {self.path}")
            self._reply({"message": "no broken"}, 500)
        elif "/containers/create?" in self.path:
            self._create(body)
        elif "/exec/" in self.path:
            self._stream("101 UPGRADED", "Connection: Upgrade\r\nUpgrade: tcp\r\n")
        elif self.path.endswith("/exec"):
            engine.commands.append(body["Cmd"])
            self._reply({"Id": "e"})
        else:
            engine.changed.append(f"POST {self.path} {content.decode()}")
            self._reply(b"", 204)

    def _create(self, body: dict[str, Any]) -> None:
        engine, name = self.server.engine, self.path.partition("name=")[2]
        if engine.refuses:
            self._reply({"message": engine.refuses}, 400)
            return
        engine.looks[name] = body
        engine.created.append({"name": name, **body})
        self._reply({"Id": f"id-{name}"}, 201)

    def _reply(
        self, data: object, status: int = 200, headers: Mapping[str, str] | None = None, *, plain: bool = False
    ) -> None:
        text = data if isinstance(data, bytes) else str(data).encode() if plain else json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def _stream(self, status: str, headers: str) -> None:
        self.close_connection = True
        self.wfile.write(f"HTTP/1.1 {status}\r\n{headers}\r\n".encode())
        with contextlib.suppress(OSError):
            self.server.engine.prints(self._send, self.server.engine.over)
            return
        self.server.engine.disconnected.set()

    def _send(self, text: bytes, stream: int = 1) -> None:
        # As an engine that is busy: the headers have been read by then.
        self.server.engine.over.wait(0.02)
        self.connection.sendall(bytes([stream, 0, 0, 0]) + len(text).to_bytes(4, "big") + text)

    def address_string(self) -> str:
        return "test"


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    request_queue_size = 16

    def __init__(self, path: str, engine: EngineServer) -> None:
        super().__init__(path, _Handler)
        self.engine = engine

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        connection, _address = super().get_request()
        return connection, ("test", 0)


class EngineServer:
    """An engine with one container ``c``. ``prints`` is the output of an exec or a log; ``commands`` are the execs.

    ``asked`` are the paths that were read, with their queries, ``changed`` the requests that change anything else. What
    is called ``gone`` is unknown, ``broken`` and ``garbled`` cannot be read.

    Containers that are created, ``looks`` by name, have the files of ``image``, of whose archives it sends up to
    ``archive_bytes``. ``statuses`` are its answers about some paths. It never answers what is ``silent``, such as
    ``HEAD /etc``, ``GET /v1.41/info``, ``POST`` or ``DELETE``, and ``refuses`` to create containers with that message.
    """

    def __init__(self, path: Path) -> None:
        self.url = f"unix://{path}"
        self.prints: Printer = says(b"")
        self.commands: list[list[str]] = []
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.changed: list[str] = []
        self.image = ImageTree({})
        self.looks: dict[str, dict[str, Any]] = {}
        self.created: list[dict[str, Any]] = []
        self.archive_bytes: int | None = None
        self.statuses: dict[str, int] = {}
        self.silent: set[str] = set()
        self.refuses = ""
        self.disconnected = threading.Event()
        self.over = threading.Event()
        self._server = _Server(str(path), self)

    @contextlib.contextmanager
    def serving(self) -> Iterator[EngineServer]:
        """Serve in another thread."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.over.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join(60)
