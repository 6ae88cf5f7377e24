"""A web app for tests, in one file without dependencies: `web_app.py ADDRESS PORT NAME`.

It returns each request as JSON; `/slow/SECONDS` waits first, `/status/CODE` has this status, a WebSocket is echoed, a
request header `Want-X` is returned as `X`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import sys
from functools import partial

MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


async def serve(name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Handle one request."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _version = lines[0].split(" ")
    headers = [line.split(": ", 1) for line in lines[1:] if line]
    fields = {key.lower(): value for key, value in headers}
    if fields.get("upgrade") == "websocket":
        await echo(reader, writer, fields["sec-websocket-key"])
    else:
        if path.startswith("/slow/"):
            await asyncio.sleep(float(path.split("/")[2]))
        body = json.dumps({"app": name, "method": method, "path": path, "headers": headers}).encode()
        extra_lines = "".join(f"{key[5:]}: {value}\r\n" for key, value in headers if key.lower().startswith("want-"))
        status = path.split("/")[2] if path.startswith("/status/") else "200 OK"
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{extra_lines}\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
    writer.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
    """Accept a WebSocket, and echo each short frame until the client disconnects."""
    accept = base64.b64encode(hashlib.sha1((key + MAGIC).encode()).digest()).decode()
    writer.write(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
    )
    while head := await reader.read(2):
        mask = await reader.readexactly(4)
        data = await reader.readexactly(head[1] & 0x7F)
        plain = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
        writer.write(bytes([head[0], len(plain)]) + plain)


async def main(address: str, port: str, name: str) -> None:
    server = await asyncio.start_server(partial(serve, name), address, int(port), backlog=4096)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
