"""Measure requests through the gateway and through an HAProxy with an empty configuration, side by side.

Both have one thread, the same certificate and the same backend. What they need for a request is their CPU time, so that
neither the client nor other processes of the machine count.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.errors import BenchError
from tests.bench.timing import rounds
from tests.lab.debian import require
from tests.unit.builders import SESSION_ID
from tests.unit.running_gateway import ADDRESS, NAME, RunningGateway, unused_ports

REQUESTS = 3000
WARM_UP = 100
DEADLINE = 30.0

_DEFAULTS = "defaults\n mode http\n timeout client 1m\n timeout connect 1m\n timeout server 1m\n"
# The headers of a browser.
_FIELDS = (
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36",
    "Accept: */*",
    "Accept-Language: en-US,en;q=0.9",
    "Accept-Encoding: gzip, deflate, br, zstd",
    "Sec-Fetch-Site: same-origin",
    "Sec-Fetch-Mode: cors",
    "Sec-Fetch-Dest: empty",
)


def measure(count: int) -> dict[str, list[float]]:
    """Return the ratio, and the requests per second of CPU time of both, of each round."""
    require("haproxy")
    figures: dict[str, list[float]] = {"gateway": [], "gateway_requests": [], "gateway_requests_empty": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gateway = RunningGateway(folder, domain="apps.example.org")
        (port,) = unused_ports(1)
        cookie = f"__Secure-backendai-{SESSION_ID}={gateway.token()}"
        lines = (f"GET /s/{NAME}/web/ HTTP/1.1", f"Host: {ADDRESS}", *_FIELDS, f"Cookie: {cookie}")
        request = "".join(f"{line}\r\n" for line in (*lines, "")).encode()
        configuration = (folder / "haproxy.cfg").read_text()
        with (
            _haproxy(folder / "app.cfg", f"{_DEFAULTS}{_app(gateway.app_port)}", gateway.app_port),
            _haproxy(folder / "empty.cfg", _empty(folder, port, gateway.app_port), port) as empty,
            _haproxy(folder / "one.cfg", f"global\n nbthread 1\n{configuration}", gateway.https_port) as full,
        ):
            for _number in rounds(count):
                plain, gated = _rate(empty, port, request), _rate(full, gateway.https_port, request)
                figures["gateway"].append(gated / plain)
                figures["gateway_requests"].append(gated)
                figures["gateway_requests_empty"].append(plain)
    return figures


def _app(port: int) -> str:
    return f"frontend app\n bind {ADDRESS}:{port}\n http-request return status 200 content-type text/plain string ok\n"


def _empty(folder: Path, port: int, app_port: int) -> str:
    bind = f"frontend all\n bind {ADDRESS}:{port} ssl crt {folder}/certificate.pem\n default_backend app\n"
    return f"global\n nbthread 1\n{_DEFAULTS}{bind}backend app\n server app {ADDRESS}:{app_port}\n"


@contextlib.contextmanager
def _haproxy(path: Path, configuration: str, port: int) -> Iterator[int]:
    """Run HAProxy, and return its process id once it listens."""
    path.write_text(configuration)
    with path.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(["haproxy", "-db", "-f", str(path)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + DEADLINE
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"HAProxy does not listen: {path.with_suffix('.log').read_text()}")
            time.sleep(0.05)
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((ADDRESS, port)) == 0


def _rate(process: int, port: int, request: bytes) -> float:
    """Return how many requests an HAProxy answers in a second of its CPU time, over one connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(socket.create_connection((ADDRESS, port))) as connection:
        _ask(connection, request, WARM_UP)
        before = _cpu_seconds(process)
        _ask(connection, request, REQUESTS)
        return REQUESTS / (_cpu_seconds(process) - before)


def _ask(connection: ssl.SSLSocket, request: bytes, count: int) -> None:
    for _number in range(count):
        connection.sendall(request)
        answer = connection.recv(1 << 16)
        # A small answer is one record of TLS.
        if not answer.startswith(b"HTTP/1.1 200 ") or not answer.endswith(b"\r\n\r\nok"):
            raise BenchError(f"the answer is {answer[:100]!r}")


def _cpu_seconds(process: int) -> float:
    """Return the CPU time of all threads of a process."""
    paths = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in paths) / 1e9
