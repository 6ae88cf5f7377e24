"""The gateway of the role on loopback: the real HAProxy with the rendered configuration, and clients of it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
ADDRESS = "127.0.0.1"

TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TLS.check_hostname = False
TLS.verify_mode = ssl.CERT_NONE


class RunningGateway:
    """A gateway with one session, ``name``, whose app ``web`` and sshd are at ports of 127.0.0.1.

    ``https_port`` and ``ssh_port`` are the gateway's, ``token`` is one for the session.
    """

    name = "train-llm"

    def __init__(self, folder: Path, app_port: int, sshd_port: int, **options: Any) -> None:
        self._folder = folder
        for name in ("empty", "maps", "keys", "pages"):
            (folder / name).mkdir()
        self.https_port, self.ssh_port = unused_port(), unused_port()
        make_token_key(folder / "token.key")
        self.token = sign(folder / "token.key", build_claims(SESSION_ID, self.name, int(time.time()), 3600))
        _write_certificate(folder / "certificate.pem")
        (folder / "keys/gateway1.pem").write_text(public_key(folder / "token.key"))
        (folder / "maps/apps.map").write_text(f"{self.name}/web {SESSION_ID}@{app_port}@{ADDRESS}\n")
        (folder / "maps/hosts.map").write_text("")
        (folder / "maps/ssh.map").write_text(f"{self.ssh_port} {SESSION_ID}@{sshd_port}@{ADDRESS}\n")
        (folder / "haproxy.cfg").write_text(self._render(options))

    def _render(self, options: dict[str, Any]) -> str:
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
        page = environment.from_string((ROLE / "templates/page.html.j2").read_text())
        for item in VARIABLES["__gateway_error_pages"]:
            (self._folder / f"pages/{item['code']}.html").write_text(page.render(item=item))
        return environment.from_string((ROLE / "templates/haproxy.cfg.j2").read_text()).render(variables)

    @contextmanager
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
        self, source: str, *, alpn: str = "http/1.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a TLS connection from an address of loopback."""
        TLS.set_alpn_protocols([alpn])
        return await asyncio.open_connection(ADDRESS, self.https_port, ssl=TLS, local_addr=(source, 0))

    def request_text(self, path: str = "") -> bytes:
        """Return a request for the app, over a connection of its own."""
        fields = f"Host: {ADDRESS}\r\nAuthorization: Bearer {self.token}\r\nConnection: close\r\n"
        return f"GET /s/{self.name}/web/{path} HTTP/1.1\r\n{fields}\r\n".encode()

    async def status(self, source: str, path: str = "") -> tuple[int, bytes]:
        """Send a request over a new connection, and return the status and the whole answer."""
        reader, writer = await self.connect(source)
        try:
            writer.write(self.request_text(path))
            answer = await asyncio.wait_for(reader.read(), 60)
            return int(answer.split(b" ", 2)[1]), answer
        finally:
            writer.close()


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
    await reader.read()
    writer.close()


def unused_port() -> int:
    """Return a TCP port that is not in use, outside of those of outgoing connections if possible."""
    with socket.create_server((ADDRESS, 0)) as server:
        return int(server.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((ADDRESS, port)) == 0


def _write_certificate(path: Path) -> None:
    key, certificate = path.with_suffix(".key"), path.with_suffix(".crt")
    line = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=gateway"
    subprocess.run([*line.split(), "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    path.write_text(certificate.read_text() + key.read_text())
