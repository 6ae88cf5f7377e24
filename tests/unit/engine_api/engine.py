"""An engine on a socket that knows its API from one version to another, and answers as moby's changelog of it says.

It has one image, one container and the networks that are created. What it is asked is judged by the published
descriptions, and kept in ``asked``. The changelog is ``api/docs/CHANGELOG.md`` of github.com/moby/moby.
"""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any, NamedTuple

from tests.unit.engine_api.judge import call_of, problems_of

INDEX, CONFIG, LAYER = (f"sha256:{digit * 64}" for digit in "dc1")
NAME = "registry.example:5000/lab/python:1"
IMAGE_CONFIG = {"Env": ["PATH=/bin"], "Cmd": ["python3"]}


def parts(version: str) -> tuple[int, int]:
    """Return a version as numbers."""
    major, minor = version.split(".")
    return int(major), int(minor)


FIXED: dict[str, tuple[int, Any]] = {
    "GET /containers/json": (200, []),
    "GET /containers/{id}/archive": (404, {"message": "no such file"}),
    "HEAD /containers/{id}/archive": (404, ""),
    "GET /containers/{id}/logs": (200, ""),
    "POST /containers/{id}/exec": (201, {"Id": "e"}),
    "GET /distribution/{name}/json": (200, {"Descriptor": {"digest": INDEX}}),
    "POST /images/{name}/tag": (201, ""),
    "DELETE /images/{name}": (200, []),
    "GET /volumes": (200, {"Volumes": []}),
}
"""What is answered in every version."""


def refused(status: int, message: str) -> tuple[int, Any]:
    """Return an answer that is an error."""
    return status, {"message": message}


class Question(NamedTuple):
    """A request that names ``version``."""

    path: str
    query: dict[str, str]
    body: dict[str, Any]
    version: str

    def knows(self, since: str) -> bool:
        """Return whether its version is that one or a newer one."""
        return parts(self.version) >= parts(since)


class ApiEngine:
    """An engine whose API goes from ``oldest`` to ``newest``, with a containerd for its images or without."""

    def __init__(self, socket: Path, newest: str, oldest: str = "1.24", *, containerd: bool = False) -> None:
        self.url, self.newest, self.oldest, self.containerd = f"unix://{socket}", newest, oldest, containerd
        self.asked: list[tuple[str, str, Any]] = []
        self.problems: list[str] = []
        self.calls: set[str] = set()
        self.networks: list[dict[str, Any]] = []
        self.created: dict[str, Any] = {}
        self.macs: dict[str, str] = {}
        self.failing: dict[str, str] = {}
        """Why references cannot be pulled."""
        self.info: dict[str, Any] = {}
        self._server = _Server(str(socket), self)

    @contextlib.contextmanager
    def serving(self) -> Iterator[ApiEngine]:
        """Serve in another thread."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join(60)

    def answer(self, method: str, target: str, body: Any) -> tuple[int, Any]:
        """Return the status and the data of an answer; text is sent as it is."""
        path, _mark, query = target.partition("?")
        self.asked.append((method, target, body))
        if path == "/_ping":
            self.calls.add("GET /_ping")
            return 200, "OK"
        problems = problems_of(method, target, body)
        self.problems += problems
        if problems:
            return 400, {"message": problems[0]}
        version, path = urllib.parse.unquote(path)[2:].split("/", 1)
        if not parts(self.oldest) <= parts(version) <= parts(self.newest):
            return 400, {"message": self._refusal(version)}
        call = call_of(method, f"/{path}") or ""
        self.calls.add(call)
        answer = self._answer(call, Question(path, dict(urllib.parse.parse_qsl(query)), body or {}, version))
        if isinstance(answer, tuple):
            status, data = answer
            return status, data
        return 201 if call.endswith("/create") and "images" not in call else 200 if answer else 204, answer

    def _refusal(self, version: str) -> str:
        if parts(version) > parts(self.newest):
            return f"client version {version} is too new. Maximum supported API version is {self.newest}"
        text = f"client version {version} is too old. Minimum supported API version is {self.oldest}"
        return f"{text}, please upgrade your client to a newer version"

    def _answer(self, call: str, question: Question) -> Any:
        """Return the data of an answer, or its status and data."""
        if call in FIXED:
            return FIXED[call]
        answers = {
            "GET /version": self._version,
            "GET /info": self._info,
            "GET /images/json": self._images,
            "GET /images/{name}/json": self._image,
            "POST /images/create": self._pull,
            "POST /containers/create": self._create,
            "GET /containers/{id}/json": self._container,
            "GET /networks": lambda _question: self.networks,
            "POST /networks/create": self._join,
            "POST /networks/{id}/connect": self._connect,
        }
        return answers[call](question) if call in answers else ""

    def _version(self, _question: Question) -> Any:
        return {"Version": "29.0.0", "ApiVersion": self.newest, "MinAPIVersion": self.oldest}

    def _images(self, _question: Question) -> Any:
        # The size of the list is that of all that is on the disk.
        return [{"Id": INDEX if self.containerd else CONFIG, "Size": 300}]

    def _info(self, question: Question) -> Any:
        known = {"DriverStatus": [], "DockerRootDir": "/var/lib/docker", "Swarm": {"LocalNodeState": "inactive"}}
        known |= {"LoggingDriver": "json-file", "CgroupDriver": "systemd"}
        if question.knows("1.44"):
            known["CDISpecDirs"] = ["/etc/cdi"]
        return {**known, **{name: value for name, (since, value) in self.info.items() if question.knows(since)}}

    def _image(self, question: Question) -> Any:
        config: dict[str, Any] = dict(IMAGE_CONFIG)
        if not question.knows("1.50"):
            # 1.50: "no longer returns the following Config fields", which were always empty.
            config |= {"Hostname": "", "AttachStdin": False, "Tty": False, "Image": "", "StdinOnce": False}
        if not question.knows("1.52"):
            # 1.52: "now omits the following Config fields when not set".
            config |= {"Entrypoint": None, "Labels": None, "OnBuild": None, "User": "", "Volumes": None}
            config |= {"WorkingDir": ""}
        image: dict[str, Any] = {
            "Id": CONFIG,
            "RepoTags": [NAME],
            "RepoDigests": [],
            "Os": "linux",
            "Architecture": "amd64",
        }
        image |= {"Config": config, "RootFS": {"Type": "layers", "Layers": [LAYER]}, "Size": 300}
        if not question.knows("1.44"):
            image["VirtualSize"] = 300
        if not question.knows("1.45"):
            image |= {"Container": "", "ContainerConfig": config}
        if self.containerd:
            image |= {"Id": INDEX, "RepoDigests": [f"{NAME.rpartition(':')[0]}@{INDEX}"], "Size": 100}
            if question.knows("1.48"):
                image["Descriptor"] = {"digest": INDEX}
        return image

    def _pull(self, question: Question) -> Any:
        query = question.query
        joint = "@" if query["tag"].startswith("sha256:") else ":"
        problem = self.failing.get(f"{query['fromImage']}{joint}{query['tag']}", "")
        if not problem:
            return json.dumps({"status": "Pull complete", "id": "layer"})
        # 1.48: "will be left empty or will be omitted in a future API version".
        return json.dumps(
            {"errorDetail": {"message": problem}, **({} if question.knows("1.48") else {"error": problem})}
        )

    def _create(self, question: Question) -> Any:
        body, host = question.body, question.body["HostConfig"]
        endpoints = (body.get("NetworkingConfig") or {}).get("EndpointsConfig") or {}
        if len(endpoints) > 1 and not question.knows("1.44"):
            return refused(400, "Container cannot be connected to network endpoints: more than one")
        mounts = host.get("Mounts") or []
        if question.knows("1.42") and any("BindOptions" in each for each in mounts if each["Type"] != "bind"):
            return refused(400, "BindOptions must not be specified for mounts of another type")
        if any(bindings in (None, []) for bindings in host.get("PortBindings", {}).values()):
            return refused(400, "empty PortBindings lists are deprecated since 1.52")
        self.created, self.macs = body, {}
        if question.knows("1.44"):
            self.macs = {name: each["MacAddress"] for name, each in endpoints.items() if each.get("MacAddress")}
        if body.get("MacAddress"):
            # 1.44 deprecates it; 1.52: "no longer supports configuring a container-wide MAC address".
            self.macs[host["NetworkMode"]] = body["MacAddress"]
        return {"Id": "c", "Warnings": []}

    def _join(self, question: Question) -> Any:
        # 1.44: "with a duplicated name now fails systematically".
        name = question.body["Name"]
        if any(network["Name"] == name for network in self.networks):
            return refused(409, f"network with name {name} already exists")
        self.networks.append({"Id": f"id-{name}", **question.body})
        return {"Id": f"id-{name}"}

    def _connect(self, question: Question) -> Any:
        endpoint = question.body["EndpointConfig"] or {}
        # 1.54: "now correctly applies the MacAddress field", which was "previously ignored".
        if question.knows("1.54") and endpoint.get("MacAddress"):
            self.macs[question.path.split("/")[1]] = endpoint["MacAddress"]
        return ""

    def _container(self, question: Question) -> Any:
        endpoint = {"IPAddress": "172.18.0.2", "IPPrefixLen": 16, "Gateway": "172.18.0.1"}
        networks = {"Networks": {"backendai-default": {**endpoint, "MacAddress": "02:42:ac:12:00:02"}}}
        # 1.52: "the NetworkSettings no longer returns the deprecated … fields".
        settings = networks if question.knows("1.52") else {**networks, "IPAddress": "", "MacAddress": "", "Bridge": ""}
        state = {"Pid": 42, "ExitCode": 0, "FinishedAt": "0001-01-01T00:00:00Z"}
        container = {"Id": "c", "Image": INDEX if self.containerd else CONFIG, "State": state}
        container |= {"NetworkSettings": settings, "Config": {"Tty": False, "Labels": {}}, "HostConfig": {}}
        return container if self.containerd else {**container, "GraphDriver": {"Data": {"UpperDir": "/layer"}}}


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_arguments: object) -> None:
        pass

    def address_string(self) -> str:
        return "test"

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        status, data = self.server.engine.answer(self.command, self.path, body)
        text = data.encode() if isinstance(data, str) else json.dumps(data).encode()
        if self.path.endswith("/start") and "/exec/" in self.path:
            self.wfile.write(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\n\r\n")
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Api-Version", self.server.engine.newest)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, engine: ApiEngine) -> None:
        super().__init__(path, _Handler)
        self.engine = engine

    def get_request(self) -> tuple[Any, tuple[str, int]]:
        connection, _address = super().get_request()
        return connection, ("test", 0)
