"""The gateway of the role on loopback: the real HAProxy with the rendered configuration, and clients of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import yaml
from jinja2 import Environment, StrictUndefined

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


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RunningGateway:
    """A gateway with one session, whose app ``web`` and sshd are at ports of 127.0.0.1.

    ``https_port`` and ``ssh_port`` are the gateway's, ``app_port`` and ``sshd_port`` the session's. ``options`` are
    those of the role, without their prefix.
    """

    def __init__(self, folder: Path, **options: int) -> None:
        self._folder = folder
        self.https_port, self.ssh_port, self.app_port, self.sshd_port = unused_ports(4)
        for name in ("empty", "maps", "keys", "pages"):
            (folder / name).mkdir()
        make_token_key(folder / "token.key")
        self._token = sign(folder / "token.key", build_claims(SESSION_ID, NAME, int(time.time()), 3600))
        _write_certificate(folder / "certificate.pem")
        (folder / "keys/gateway1.pem").write_text(public_key(folder / "token.key"))
        (folder / "maps/apps.map").write_text(f"{NAME}/web {SESSION_ID}@{self.app_port}@{ADDRESS}@strip\n")
        (folder / "maps/hosts.map").write_text("")
        (folder / "maps/ssh.map").write_text(f"{self.ssh_port} {SESSION_ID}@{self.sshd_port}@{ADDRESS}\n")
        (folder / "haproxy.cfg").write_text(self._render(options))

    def _render(self, options: dict[str, int]) -> str:
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
            page = environment.from_string((ROLE / f"templates/page.{form}.j2").read_text())
            for item in VARIABLES["__gateway_error_pages"]:
                (self._folder / f"pages/{item['name']}.{form}").write_text(page.render(item=(item, form)))
        return environment.from_string((ROLE / "templates/haproxy.cfg.j2").read_text()).render(variables)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run HAProxy until the end of the context."""
        require("haproxy")
        with (self._folder / "log").open("wb") as log:
            line = ["haproxy", "-db", "-f", str(self._folder / "haproxy.cfg")]
            process = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + 10
            while not _listens(self.https_port):
                assert process.poll() is None, (self._folder / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield
        finally:
            process.kill()
            process.wait()

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
    await asyncio.sleep(int(seconds or 0))
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    await writer.drain()
    writer.close()


async def answer_ssh(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a banner, and wait for the end of the connection."""
    writer.write(b"SSH-2.0-test\r\n")
    with contextlib.suppress(ConnectionError, asyncio.CancelledError):
        await reader.read()
    writer.close()


def unused_ports(count: int) -> list[int]:
    """Return TCP ports that are not in use."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server((ADDRESS, 0))) for _port in range(count)]
        return [int(server.getsockname()[1]) for server in servers]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((ADDRESS, port)) == 0


def _write_certificate(path: Path) -> None:
    key, certificate = path.with_suffix(".key"), path.with_suffix(".crt")
    line = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=gateway"
    subprocess.run([*line.split(), "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    path.write_text(certificate.read_text() + key.read_text())
