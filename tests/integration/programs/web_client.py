"""A web client for tests, in one file without dependencies: reads a job as JSON from standard input, prints results.

`{"host": …, "requests": [{"path": …, "headers": {…}, "name": …}]}` sends the requests one after the other. With
`{"host": …, "load": {"path": …, "headers": …, "at_once": 500, "until": …, "socket": …}}`, that many requests are
in flight until the file `until` exists, and a WebSocket at the path `socket` sends a frame every 50 ms.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import sys
from collections import Counter
from pathlib import Path
from typing import Any

TLS = ssl.create_default_context()
TLS.check_hostname = False
TLS.verify_mode = ssl.CERT_NONE


async def send_request(host: str, request: dict[str, Any]) -> dict[str, Any]:
    """Send one request over a new connection; return status, headers and body."""
    reader, writer = await asyncio.open_connection(host, 443, ssl=TLS)
    headers = {"Host": request.get("name", host), "Connection": "close", **request.get("headers", {})}
    head = f"{request.get('method', 'GET')} {request['path']} HTTP/1.1\r\n"
    writer.write((head + "".join(f"{key}: {value}\r\n" for key, value in headers.items()) + "\r\n").encode())
    answer = await reader.read()
    writer.close()
    top, _empty, body = answer.decode().partition("\r\n\r\n")
    lines = top.split("\r\n")
    fields = {key.lower(): value for key, value in (line.split(": ", 1) for line in lines[1:])}
    return {"status": int(lines[0].split(" ")[1]), "headers": fields, "body": body}


class WebSocket:
    """An open WebSocket; `frames` counts the answers."""

    def __init__(self) -> None:
        self.status, self.frames = 0, 0

    async def open(self, host: str, path: str, headers: dict[str, str]) -> None:
        self._reader, self._writer = await asyncio.open_connection(host, 443, ssl=TLS)
        key = base64.b64encode(os.urandom(16)).decode()
        upgrade = {"Host": host, "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        lines = {**upgrade, "Sec-WebSocket-Key": key, **headers}
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self._writer.write(f"GET {path} HTTP/1.1\r\n{text}\r\n".encode())
        head = await self._reader.readuntil(b"\r\n\r\n")
        self.status = int(head.split(b" ")[1])

    async def send_text(self, text: bytes) -> bytes:
        """Send a short text and return the reply."""
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(text))
        self._writer.write(bytes([0x81, 0x80 | len(text)]) + mask + masked)
        head = await self._reader.readexactly(2)
        self.frames += 1
        return await self._reader.readexactly(head[1])


async def run_websocket(host: str, load: dict[str, Any], until: Path) -> int:
    """Keep one WebSocket open and busy until a file exists; return the number of replies. Raises if it is cut."""
    socket = WebSocket()
    await socket.open(host, load["socket"], load["headers"])
    if socket.status != 101:
        raise RuntimeError(f"refused with {socket.status}")
    while not until.exists():
        payload = os.urandom(8)
        if await socket.send_text(payload) != payload:
            raise RuntimeError("unexpected reply")
        await asyncio.sleep(0.05)
    return socket.frames


async def repeat_request(host: str, load: dict[str, Any], until: Path, results: Counter[str]) -> None:
    """Repeat a request until a file exists, and count the results."""
    while not until.exists():
        try:
            results[str((await send_request(host, load))["status"])] += 1
        except (OSError, IndexError, ValueError) as error:
            results[f"{type(error).__name__}: {error}"] += 1


async def run_load(host: str, load: dict[str, Any]) -> dict[str, Any]:
    """Keep many requests in flight; return the count of each status or error, and of the WebSocket's frames."""
    until, results = Path(load["until"]), Counter[str]()
    frames, *_rest = await asyncio.gather(
        run_websocket(host, load, until),
        *(repeat_request(host, load, until, results) for _number in range(load["at_once"])),
    )
    return {"results": dict(results), "frames": frames}


async def main() -> None:
    job = json.load(sys.stdin)
    if "load" in job:
        print(json.dumps(await run_load(job["host"], job["load"])))
    elif "socket" in job:
        socket = WebSocket()
        await socket.open(job["host"], job["socket"]["path"], job["socket"]["headers"])
        received = (await socket.send_text(b"hello")).decode() if socket.status == 101 else None
        print(json.dumps({"status": socket.status, "received": received}))
    else:
        print(json.dumps([await send_request(job["host"], request) for request in job["requests"]]))


if __name__ == "__main__":
    asyncio.run(main())
