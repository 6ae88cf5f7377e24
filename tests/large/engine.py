"""One process that answers for the Docker engines of all simulated agents, each on a socket of its own.

What it answers is what an engine of the lab said, without what nothing reads. The containers that it lists are those
of the sessions in the agent's state folder, all running. It reads only: nothing can be created, started or removed.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._docker import labels
from ansible_collections.backendai.cluster.plugins.module_utils._host.local_session import LocalSession
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.network import DEFAULT_BRIDGE
from tests.large.agents import LargeLab, SimulatedAgent

IMAGES: dict[str, Any] = {
    "lab/python:1": {
        "Architecture": "amd64",
        "Config": {"Cmd": ["bash"], "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
        "Id": "sha256:544466344026d9ba862b82d95bc9d70fb9a93a21a9e60ce7b62dc794d1c6d1aa",
        "Metadata": {"LastTagTime": "0001-01-01T00:00:00Z"},
        "Os": "linux",
        "RepoDigests": [],
        "RepoTags": ["lab/python:1"],
        "RootFS": {"Layers": ["sha256:342c1a0866da1ff434be972160563d269f22c7befc21d732754e03cb7d8336d4"]},
        "Size": 121459494,
    }
}
ANSWERS: dict[str, Any] = {
    "version": {"ApiVersion": "1.41", "MinAPIVersion": "1.12", "Version": "20.10.24+dfsg1"},
    "info": {
        "CgroupDriver": "cgroupfs",
        "DockerRootDir": "/var/lib/docker",
        "Driver": "overlay2",
        "LoggingDriver": "json-file",
        "SecurityOptions": ["name=seccomp,profile=default"],
        "Swarm": {"LocalNodeState": "inactive"},
    },
    "networks": [
        {
            "Driver": "bridge",
            "IPAM": {"Config": [{"Gateway": "172.18.0.1", "Subnet": "172.18.0.0/16"}]},
            "Id": "cadc15f117654ceb082ef66c623f9d05de5b2f0db20e336bc994522803154cd0",
            "Labels": {labels.OWNER: labels.OWNER_VALUE},
            "Name": "backendai-default",
            "Options": {"com.docker.network.bridge.name": DEFAULT_BRIDGE},
        }
    ],
}

Reply = tuple[int, Any]


class SimulatedEngine:
    """The engine of one agent."""

    def __init__(self, agent: SimulatedAgent) -> None:
        self._agent, self._store = agent, Store(str(agent.state))

    def answer(self, method: str, target: str) -> Reply:
        """Return the status and the data of the answer to a request."""
        path, _mark, query = target.partition("?")
        parts = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
        if parts[0].startswith("v1."):
            del parts[0]
        if method != "GET":
            return 501, {"message": f"the engine of {self._agent.name} is simulated: it starts and changes nothing"}
        data = self._read(parts, dict(urllib.parse.parse_qsl(query)))
        return (404, {"message": f"No such object: {path}"}) if data is None else (200, data)

    def _read(self, parts: list[str], query: Mapping[str, str]) -> Any:
        """Return what is read; ``None`` if it does not exist."""
        data: Any = None
        match parts:
            case ["containers", "json"]:
                data = self._containers(json.loads(query.get("filters") or "{}").get("label") or [])
            case ["containers", container, "json"]:
                data = self._inspected().get(container)
            case ["images", "json"]:
                data = [{"Id": image["Id"]} for image in IMAGES.values()]
            case ["images", *name, "json"]:
                data = IMAGES.get("/".join(name))
            case ["version" | "info" | "networks" as kind]:
                data = ANSWERS[kind]
            case ["_ping"]:
                data = "OK"
        return data

    def _containers(self, filters: list[str]) -> list[dict[str, Any]]:
        wanted = [text.partition("=") for text in filters]
        return [
            container
            for session in self._store.load_all()[0]
            for container in _listed(session)
            if all(container["Labels"].get(name, "") == value or not equals for name, equals, value in wanted)
        ]

    def _inspected(self) -> dict[str, Any]:
        state = {"Status": "running", "Pid": 1, "ExitCode": 0, "FinishedAt": "0001-01-01T00:00:00Z"}
        return {container["Id"]: {"Id": container["Id"], "State": state} for container in self._containers([])}


def _listed(session: LocalSession) -> Iterator[dict[str, Any]]:
    """Yield the containers of a session as an engine lists them."""
    for kernel in session.kernels:
        yield {
            "Id": kernel.id.replace("-", ""),
            "Names": [f"/{kernel.container}"],
            "Image": kernel.image,
            "State": "running",
            "Status": "Up 2 hours",
            "Labels": {
                labels.OWNER: labels.OWNER_VALUE,
                labels.SESSION_ID: session.plan.id,
                labels.SESSION_NAME: session.plan.name,
                labels.KERNEL_ID: kernel.id,
                labels.HOSTNAME: kernel.hostname,
                labels.IMAGE_DIGEST: IMAGES[kernel.image]["Id"],
                labels.NONCE: session.nonce,
            },
        }


async def _serve(engine: SimulatedEngine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection."""
    try:
        while line := await reader.readline():
            method, target, version = line.decode().split()
            length = 0
            while (header := await reader.readline()).strip():
                name, _colon, value = header.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
            await reader.readexactly(length)
            status, data = engine.answer(method, target)
            text = json.dumps(data).encode()
            head = f"{version} {status} Simulated\r\nApi-Version: {ANSWERS['version']['ApiVersion']}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n"
            writer.write(f"{head}\r\n".encode() + text)
            await writer.drain()
            if version == "HTTP/1.0":
                break
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def serve(agents: list[SimulatedAgent]) -> None:
    """Serve the engines of agents until this process is killed."""
    for agent in agents:
        await asyncio.start_unix_server(functools.partial(_serve, SimulatedEngine(agent)), agent.socket, backlog=64)
    await asyncio.Event().wait()


if __name__ == "__main__":
    lab, count = LargeLab(Path(sys.argv[1])), int(sys.argv[2])
    asyncio.run(serve([lab.agent(number) for number in range(1, count + 1)]))
