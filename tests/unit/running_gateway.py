"""The gateway of the role on loopback: the real HAProxy with the rendered configuration, and clients of it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import yaml
from jinja2 import Environment, StrictUndefined

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.model import Gateway
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.routes import (
    Endpoint,
    Route,
    RoutedApp,
    build_haproxy_maps,
)
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.token import (
    build_claims,
    make_token_key,
    public_key,
    sign,
)
from tests.lab.debian import require
from tests.unit.builders import REPOSITORY, SESSION_ID

ROLE = REPOSITORY / "roles/gateway"
DEFAULTS = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
VARIABLES = yaml.safe_load((ROLE / "vars/main.yml").read_text())
ADDRESS, NAME = "127.0.0.1", "train-llm"
OTHER, OTHER_ID = "other-user", "6f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
APPS = {"web": "strip", "notebook": "keep", "editor": "none"}

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer to a request; ``headers`` have names in lower case, and the values of each."""

    status: int
    headers: dict[str, list[str]]
    body: str

    def header(self, name: str) -> str:
        """Return the only value of a header; empty without one."""
        values = self.headers.get(name, [""])
        assert len(values) == 1, values
        return values[0]


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> Answer:
    """Send a request, and return the answer."""
    writer.write(f"{head}\r\n\r\n".encode())
    return await asyncio.wait_for(_read_answer(reader), 60)


async def _read_answer(reader: asyncio.StreamReader) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers: dict[str, list[str]] = {}
    for line in filter(None, head[1:]):
        name, _colon, value = line.partition(":")
        headers.setdefault(name.lower(), []).append(value.strip())
    size = int(headers.get("content-length", ["0"])[0])
    return Answer(int(head[0].split(" ")[1]), headers, (await reader.readexactly(size)).decode())


LOG_SECONDS = 10.0


class RunningGateway:
    """A gateway with two sessions, whose apps and sshd are at ports of 127.0.0.1.

    The first session has the apps ``web``, ``notebook`` (keep) and ``editor`` (none) at ``app_port``, and ``down`` at
    ``unused_port``; the other one has ``web`` at ``other_port``. ``https_port`` and ``ssh_port`` are the gateway's,
    ``sshd_port`` the first session's. ``options`` are those of the role, without their prefix.
    """

    def __init__(self, folder: Path, **options: object) -> None:
        self._folder = folder
        self.https_port, self.ssh_port, self.app_port, self.sshd_port, self.other_port, self.unused_port = unused_ports(
            6
        )
        for name in ("empty", "maps", "keys", "pages"):
            (folder / name).mkdir()
        make_token_key(folder / "token.key")
        self._token = self.token()
        _write_certificate(folder / "certificate.pem")
        (folder / "keys/gateway1.pem").write_text(public_key(folder / "token.key"))
        for name, entries in build_haproxy_maps(self._routes(), self._gateway(options)).items():
            (folder / "maps" / name).write_text("".join(f"{key} {value}\n" for key, value in entries.items()))
        (folder / "haproxy.cfg").write_text(self._render(options))

    def _gateway(self, options: dict[str, object]) -> Gateway:
        return Gateway(ADDRESS, str(options.get("domain", "")), self.https_port, self.ssh_port, self.ssh_port)

    def _routes(self) -> list[Route]:
        place, down = Endpoint(ADDRESS, self.app_port), Endpoint(ADDRESS, self.unused_port)
        apps = [RoutedApp(name, "http", place, path) for name, path in APPS.items()]
        sshd = Endpoint(ADDRESS, self.sshd_port)
        other = RoutedApp("web", "http", Endpoint(ADDRESS, self.other_port))
        return [
            Route(SESSION_ID, NAME, (*apps, RoutedApp("down", "http", down)), sshd, self.ssh_port),
            Route(OTHER_ID, OTHER, (other,)),
        ]

    def token(self, session_id: str = SESSION_ID, seconds: int = 3600) -> str:
        """Return a token for a session that expires in as many seconds."""
        return sign(self._folder / "token.key", build_claims(session_id, NAME, int(time.time()), seconds))

    def _render(self, options: dict[str, object]) -> str:
        """Write the pages, and return the configuration of the role with these options, without their prefix."""
        environment = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
        variables = {
            **DEFAULTS,
            "gateway_address": ADDRESS,
            "gateway_https_port": self.https_port,
            "gateway_ssh_ports": self.ssh_port,
            "gateway_state_path": str(self._folder),
            "__gateway_maps": str(self._folder / "maps"),
            "__gateway_pages": str(self._folder / "pages"),
            "__gateway_certificate": str(self._folder / "certificate.pem"),
            "__gateway_socket": str(self._folder / "admin.sock"),
            "__gateway_cookie": VARIABLES["__gateway_cookie"],
            "__gateway_expected_keys": [str(self._folder / "keys/gateway1.pem")],
            "__gateway_installed_keys": {"files": [{"path": str(self._folder / "keys/gateway1.pem")}]},
            "__gateway_ipv6": {"stat": SimpleNamespace(exists=False)},
            **{f"gateway_{name}": value for name, value in options.items()},
        }
        for form in ("html", "json"):
            template = environment.from_string((ROLE / f"templates/page.{form}.j2").read_text())
            for page in VARIABLES["__gateway_error_pages"]:
                (self._folder / f"pages/{page['name']}.{form}").write_text(template.render(page=page))
        return environment.from_string((ROLE / "templates/haproxy.cfg.j2").read_text()).render(variables)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run HAProxy until the end of the context."""
        require("haproxy")
        with (self._folder / "log").open("wb") as log:
            line = ["haproxy", "-db", "-f", str(self._folder / "haproxy.cfg")]
            process = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + 60
            # HAProxy listens at one port after the other.
            while not (_listens(self.https_port) and _listens(self.ssh_port)):
                assert process.poll() is None, (self._folder / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield
        finally:
            process.kill()
            process.wait()

    def logged_paths(self, last: str) -> list[str]:
        """Return the paths of the requests in the log, which is written after the answer, once it has the last one."""
        deadline = time.monotonic() + LOG_SECONDS
        paths: list[str] = []
        while last not in paths and time.monotonic() < deadline:
            time.sleep(0.02)
            paths = re.findall(r'"(/\S*)" \d{3} ', (self._folder / "log").read_text())
        return paths

    async def connect(
        self, source: str, *, tls: bool = True, alpn: str = "http/1.1", port: int | None = None
    ) -> Connection:
        """Open a connection from an address of loopback, to the HTTPS port unless another one is given."""
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols([alpn])
        return await asyncio.open_connection(ADDRESS, port or self.https_port, ssl=context, local_addr=(source, 0))

    async def send(self, head: str, source: str = ADDRESS) -> Answer:
        """Send a request, without its last empty line, over a new connection; return the answer."""
        return (await self.send_all([head], source))[0]

    async def send_all(self, heads: Sequence[str], source: str = ADDRESS) -> list[Answer]:
        """Send requests over one connection, each after the answer of the last one."""
        reader, writer = await self.connect(source)
        try:
            return [await _exchange(reader, writer, head) for head in heads]
        finally:
            writer.transport.abort()

    async def send_while_answered(self, head: str) -> list[Answer]:
        """Repeat a request over one connection, five times a second, until it is not answered with 200."""
        reader, writer = await self.connect(ADDRESS)
        try:
            answers = [await _exchange(reader, writer, head)]
            while answers[-1].status == 200:
                await asyncio.sleep(0.2)
                answers.append(await _exchange(reader, writer, head))
            return answers
        finally:
            writer.transport.abort()

    def request_fields(self, path: str = "") -> list[tuple[bytes, bytes]]:
        """Return the fields of a request for the app, in HTTP/2."""
        fields = {
            ":method": "GET",
            ":scheme": "https",
            ":authority": ADDRESS,
            ":path": f"/s/{NAME}/web/{path}",
            "authorization": f"Bearer {self._token}",
        }
        return [(name.encode(), value.encode()) for name, value in fields.items()]

    def request_text(self, path: str = "") -> bytes:
        """Return a request for the app, the last one of its connection."""
        fields = f"Host: {ADDRESS}\r\nAuthorization: Bearer {self._token}\r\nConnection: close\r\n"
        return f"GET /s/{NAME}/web/{path} HTTP/1.1\r\n{fields}\r\n".encode()

    async def request(self, source: str, path: str = "") -> tuple[int, bytes]:
        """Send a request over a new connection; return the status and the whole answer.

        Raises :class:`OSError`, or :class:`ValueError` if the answer is none.
        """
        reader, writer = await self.connect(source)
        try:
            writer.write(self.request_text(path))
            answer = await asyncio.wait_for(reader.read(), 60)
            return int(answer[9:12]), answer
        finally:
            writer.transport.abort()


async def answer_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request, after as many seconds as its path says."""
    head = await reader.readuntil(b"\r\n\r\n")
    seconds = head.split(b" ")[1].removeprefix(b"/")
    await asyncio.sleep(float(seconds or 0))
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    await writer.drain()
    writer.close()


async def answer_ssh(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a banner, and wait for the end of the connection."""
    writer.write(b"SSH-2.0-test\r\n")
    with contextlib.suppress(ConnectionError, asyncio.CancelledError):
        await reader.read()
    writer.close()


_RESERVED: list[socket.socket] = []


def unused_ports(count: int) -> list[int]:
    """Return TCP ports that nothing else is given before this process ends: sockets that do not listen hold them.

    A server can listen at them nevertheless, with SO_REUSEADDR, which all servers have.
    """
    reserved = [socket.socket() for _port in range(count)]
    for one in reserved:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((ADDRESS, 0))
    _RESERVED.extend(reserved)
    return [int(one.getsockname()[1]) for one in reserved]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((ADDRESS, port)) == 0


def _write_certificate(path: Path) -> None:
    key, certificate = path.with_suffix(".key"), path.with_suffix(".crt")
    line = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=gateway"
    subprocess.run([*line.split(), "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    path.write_text(certificate.read_text() + key.read_text())
