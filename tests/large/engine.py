"""One process that answers for the Docker engines of all simulated agents, each on a socket of its own.

What it answers was recorded from an engine of the lab. The containers that it lists are those of the sessions in the
agent's state folder, all running. It reads only: nothing can be created, started or removed.
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
from tests.large.identity import LargeLab, SimulatedAgent

RECORDED = Path(__file__).with_name("recorded")

Reply = tuple[int, Any]


@functools.cache
def recorded(name: str) -> Any:
    """Return a recorded answer of an engine."""
    return json.loads((RECORDED / f"{name}.json").read_text())


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
                data = [{"Id": image["Id"]} for image in recorded("images").values()]
            case ["images", *name, "json"]:
                data = recorded("images").get("/".join(name))
            case ["version" | "info" | "networks" as kind]:
                data = recorded(kind)
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
    images = recorded("images")
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
                labels.IMAGE_DIGEST: images[kernel.image]["Id"],
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
            head = f"{version} {status} Simulated\r\nApi-Version: {recorded('version')['ApiVersion']}\r\n"
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
