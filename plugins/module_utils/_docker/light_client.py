# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A client of the engine for what starts and ends sessions, without the Docker SDK, which it uses for everything else.

The import of the SDK takes 0.1 s of CPU, a third of a request to an agent, and each of its requests 3 ms.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, TypeVar

from .._model.errors import ClusterError
from .api_version import is_version
from .sdk import docker

_PATHS = {
    "containers": "/containers/json",
    "images": "/images/json",
    "info": "/info",
    "inspect_container": "/containers/{}/json",
    "inspect_image": "/images/{}/json",
    "networks": "/networks",
    "nodes": "/nodes",
    "version": "/version",
}
"""The paths of the engine's API that these methods of ``docker.APIClient`` read, with the names that they take."""

_NETWORK_FIELDS = {
    "check_duplicate": "CheckDuplicate",
    "driver": "Driver",
    "internal": "Internal",
    "ipam": "IPAM",
    "labels": "Labels",
    "options": "Options",
}
"""The settings of networks that the SDK knows by the first name, and the API by the second."""

_CHANGES = {
    "kill": ("POST", "/containers/{}/kill"),
    "remove_container": ("DELETE", "/containers/{}"),
    "remove_network": ("DELETE", "/networks/{}"),
    "start": ("POST", "/containers/{}/start"),
}
"""The requests of these methods, which return nothing; their keywords are parameters of the request."""

T = TypeVar("T")

HEADER_BYTES = 8
"""What the engine puts before each message of an output: the number of its stream first, its size last, in 4 bytes."""

_UPGRADE = "Connection: Upgrade\r\nUpgrade: tcp\r\n"


class EngineSilentError(ClusterError, OSError):
    """The engine has not answered a call in time; like the SDK's errors of that kind, it is an :class:`OSError`."""


class _RefusedError(ValueError):
    """The engine has answered with another status than one of success."""

    def __init__(self, status: bytes, message: str) -> None:
        super().__init__(message)
        self._status = status

    def as_of_sdk(self) -> Exception:
        """Return the SDK's error; with its stand-in, where the SDK cannot be imported, nothing else differs."""
        kind = docker.errors.NotFound if self._status == b"404" else docker.errors.APIError
        return kind(f"the engine has answered with status {self._status.decode()}", explanation=str(self))


def newest_version(path: str, seconds: float) -> str:
    """Return the newest version of its API that the engine at a socket knows: it is asked before one can be named.

    Raises :class:`OSError`, such as :class:`EngineSilentError`, or :class:`ValueError`.
    """
    head, body = _exchange(path, seconds, "GET /_ping HTTP/1.0", None)
    _check_status(head, body, b"200")
    found = re.search(rb"(?i)\r\napi-version: *(\S+)", head)
    version = found[1].decode(errors="replace") if found else ""
    if not is_version(version):
        raise ValueError(f"the engine names the version of its API as {version!r}")
    return version


class LightClient:
    """The methods of ``docker.APIClient``, over the engine's socket at ``path``; ``sdk`` returns a client of the SDK.

    All calls name ``api_version``, and what the engine refuses raises the SDK's errors. Only where the engine cannot be
    reached, or its answer is not understood, the SDK asks again. ``seconds`` limits each part of an answer.
    """

    def __init__(self, path: str, api_version: str, sdk: Callable[[], docker.APIClient], seconds: float) -> None:
        self._path, self.api_version, self._make_sdk, self._seconds = path, api_version, sdk, seconds
        self._sdk_client: docker.APIClient | None = None
        self._lock = threading.Lock()

    @property
    def timeout(self) -> float:
        """The timeout of the SDK's client, in seconds."""
        return self._sdk.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        sdk: Any = self._sdk
        sdk.timeout = seconds

    def create_container_from_config(self, config: Mapping[str, Any], name: str) -> dict[str, Any]:
        """Create a container that is described as the API does, and return its ``Id``."""
        path = f"/containers/create?{urllib.parse.urlencode({'name': name})}"
        return self._or_by_sdk("create_container_from_config", lambda: self._ask("POST", path, config), config, name)

    def connect_container_to_network(self, container: str, network: str) -> None:
        """Connect a container to one more network."""
        path, data = f"/networks/{_quote(network)}/connect", {"Container": container}
        self._or_by_sdk("connect_container_to_network", lambda: self._exchange("POST", path, data), container, network)

    def create_network(self, name: str, **settings: Any) -> None:
        """Create a network with settings of the SDK: ``driver`` and others, of which ``None`` is not sent."""
        fields = {_NETWORK_FIELDS[key]: value for key, value in settings.items() if value is not None}
        data = {"Name": name, **fields}
        self._or_by_sdk("create_network", lambda: self._exchange("POST", "/networks/create", data), name, **settings)

    def exec_create(self, container: str, command: Sequence[str]) -> dict[str, Any]:
        """Prepare a command in a container, as the user that it runs as, and return its ``Id``."""
        path = f"/containers/{_quote(container)}/exec"
        data = {"AttachStdout": True, "AttachStderr": True, "Cmd": [*command]}
        return self._or_by_sdk("exec_create", lambda: self._ask("POST", path, data), container, [*command])

    def exec_start(self, execution: str, socket: bool) -> Any:
        """Start a prepared command and return the connection with its output, or without ``socket`` its output."""
        if not socket:
            return self._sdk.exec_start(execution)
        # Not asked again: the engine would say that it has begun, whatever has become of it.
        try:
            return self._start(f"/exec/{_quote(execution)}/start")
        except _RefusedError as error:
            raise error.as_of_sdk() from error

    def logs(self, container: str, **settings: Any) -> Messages:
        """Return the messages of a container without a terminal: the setting ``stream`` of the SDK is always true."""
        given = {name: value for name, value in settings.items() if name != "stream" and value is not None}
        query = urllib.parse.urlencode({name: _parameter(value) for name, value in given.items()})
        path = f"/containers/{_quote(container)}/logs?{query}"
        return self._or_by_sdk("logs", lambda: self._open(path), container, **settings)

    def tag(self, image: str, repository: str, tag: str | None = None) -> bool:
        """Give an image a name; the SDK would send what the engine's API no longer has."""
        query = urllib.parse.urlencode({"repo": repository, **({"tag": tag} if tag else {})})
        path = f"/images/{_quote(image)}/tag?{query}"
        self._or_by_sdk("tag", lambda: self._exchange("POST", path), image, repository, tag)
        return True

    def __getattr__(self, name: str) -> Any:
        if name not in _PATHS and name not in _CHANGES:
            return getattr(self._sdk, name)
        method, form = _CHANGES.get(name) or ("GET", _PATHS[name])

        def ask(*names: str, **parameters: Any) -> Any:
            query = urllib.parse.urlencode({key: _parameter(value) for key, value in parameters.items()})
            path = f"{form.format(*map(_quote, names))}{'?' if query else ''}{query}"
            take = self._ask if method == "GET" else self._exchange
            answer = self._or_by_sdk(name, lambda: take(method, path), *names, **parameters)
            return answer if method == "GET" else None

        return ask

    def _or_by_sdk(self, name: str, ask: Callable[[], T], *values: Any, **keywords: Any) -> T:
        """Return what a request gives, or if that fails, a method of the SDK with these arguments."""
        try:
            return ask()
        except EngineSilentError:
            raise
        except _RefusedError as error:
            raise error.as_of_sdk() from error
        except (OSError, ValueError):
            result: T = getattr(self._sdk, name)(*values, **keywords)
            return result

    @property
    def _sdk(self) -> docker.APIClient:
        # Containers are started by several threads.
        with self._lock:
            if self._sdk_client is None:
                self._sdk_client = self._make_sdk()
            return self._sdk_client

    def _ask(self, method: str, target: str, data: Mapping[str, Any] | None = None) -> Any:
        """Return the data in the engine's answer. Raises :class:`OSError` or :class:`ValueError`."""
        return json.loads(self._exchange(method, target, data))

    def _exchange(self, method: str, target: str, data: Mapping[str, Any] | None = None) -> bytes:
        """Return the engine's answer. Raises :class:`OSError` or :class:`ValueError`."""
        # With HTTP/1.0 the answer has no parts, and ends with the connection.
        line = f"{method} /v{self.api_version}{target} HTTP/1.0"
        head, body = _exchange(self._path, self._seconds, line, data)
        _check_status(head, body, b"200", b"201", b"204", b"304")
        return body

    def _start(self, target: str) -> socket.socket:
        """Return the connection that remains after the engine's answer. Raises :class:`_RefusedError`."""
        line = f"POST /v{self.api_version}{target} HTTP/1.1"
        with _in_time(self._path, self._seconds, line):
            connection = _send(self._path, self._seconds, line, {"Detach": False, "Tty": False}, _UPGRADE)
            try:
                # Without a buffer, nothing of the output that follows the head is read.
                with connection.makefile("rb", buffering=0) as stream:
                    _read_head(stream, b"101", b"200")
            except BaseException:
                connection.close()
                raise
        return connection

    def _open(self, target: str) -> Messages:
        """Return the messages in the engine's answer. Raises :class:`OSError` or :class:`ValueError`."""
        line = f"GET /v{self.api_version}{target} HTTP/1.0"
        with _in_time(self._path, self._seconds, line):
            connection = _send(self._path, self._seconds, line, None)
            stream = connection.makefile("rb")
            try:
                _read_head(stream, b"200")
            except BaseException:
                # The connection stays open until both are closed.
                stream.close()
                connection.close()
                raise
        # As the SDK does: who reads them has a limit of its own.
        connection.settimeout(None)
        return Messages(connection, stream)


class Messages:
    """The messages of a log, as the engine sends them. ``close`` ends them, also for a thread that waits for one."""

    def __init__(self, connection: socket.socket, stream: IO[bytes]) -> None:
        self._connection, self._stream = connection, stream

    def __iter__(self) -> Iterator[bytes]:
        with self._connection, self._stream:
            while len(header := self._stream.read(HEADER_BYTES)) == HEADER_BYTES:
                yield self._stream.read(int.from_bytes(header[4:], "big"))

    def close(self) -> None:
        """Let the reader find the end here."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)


def _read_head(stream: IO[bytes] | socket.SocketIO, *expected: bytes) -> None:
    """Read the head of an answer, whose content remains to be read. Raises an error as :func:`_check_status`."""
    head = b"".join(itertools.takewhile(lambda line: line != b"\r\n", stream))
    if not head:
        raise ConnectionResetError("the Docker engine closed the connection without an answer")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    _check_status(head, (stream.read(int(length[1])) if length else None) or b"", *expected)


def _exchange(path: str, seconds: float, line: str, data: Mapping[str, Any] | None) -> tuple[bytes, bytes]:
    """Return the head and the content of the engine's answer to a request of HTTP/1.0."""
    with _in_time(path, seconds, line), _send(path, seconds, line, data) as peer, peer.makefile("rb") as stream:
        head, _empty, body = stream.read().partition(b"\r\n\r\n")
    return head, body


@contextlib.contextmanager
def _in_time(path: str, seconds: float, line: str) -> Iterator[None]:
    """Raise :class:`EngineSilentError` for a request, given its line, if the engine takes longer for a part of it."""
    try:
        yield
    except socket.timeout as error:  # Before Python 3.10 it is no TimeoutError.
        asked = re.split(r"\?| HTTP/", line)[0]
        raise EngineSilentError(
            f"the Docker engine at unix://{path} did not answer {asked} within {seconds:g} seconds: restart it on this"
            " host (systemctl restart docker) if that stays so."
        ) from error


def _send(path: str, seconds: float, line: str, data: Mapping[str, Any] | None, headers: str = "") -> socket.socket:
    """Send a request to the engine at a socket, and return its connection."""
    content = json.dumps(data) if data is not None else ""
    described = f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(seconds)
        connection.connect(path)
        connection.sendall(f"{line}\r\nHost: docker\r\n{headers}{described}\r\n{content}".encode())
    except BaseException:
        connection.close()
        raise
    return connection


def _message_in(body: bytes) -> str:
    """Return what an engine says of an error."""
    text = body.decode(errors="replace").strip()
    try:
        return str(json.loads(text)["message"])
    except (ValueError, TypeError, KeyError):
        return text


def _quote(name: str) -> str:
    return urllib.parse.quote(name, safe="/:")


def _parameter(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _check_status(head: bytes, body: bytes, *expected: bytes) -> None:
    """Raise an error unless an answer has an expected status: :class:`_RefusedError` if it has another one."""
    status = head[:20].split()[1:2]
    if status and status[0] in expected:
        return
    if not status or not status[0].isdigit():
        raise ValueError(f"the engine answers {head[:100]!r}")
    raise _RefusedError(status[0], _message_in(body))
