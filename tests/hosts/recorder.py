"""Runs on a host: ``recorder.py SOCKET ENGINE FILE`` passes on what an engine is asked, and writes each request down.

The file has a line of JSON for each, with ``method``, ``target`` and ``body``.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
import sys

CHUNK = 1 << 16


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on all that comes, and its end."""
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, file: str) -> None:
    """Pass on requests, each written down before the engine gets it; what follows an upgrade is passed on as it is."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            method, target = head.decode("latin-1").split()[:2]
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            with open(file, "a") as log:
                data = json.loads(body) if body.startswith(b"{") else None
                log.write(json.dumps({"method": method, "target": target, "body": data}) + "\n")
            writer.write(head + body)
            await writer.drain()
            if re.search(rb"(?i)\r\n(upgrade|transfer-encoding):", head):
                await _relay(reader, writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _pass_on(engine: str, file: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection until the engine closes it."""
    try:
        from_engine, to_engine = await asyncio.open_unix_connection(engine)
    except OSError:
        writer.close()
        return
    asking = asyncio.create_task(_ask(reader, to_engine, file))
    await _relay(from_engine, writer)
    asking.cancel()
    to_engine.close()
    await asyncio.gather(asking, return_exceptions=True)


async def serve(socket: str, engine: str, file: str) -> None:
    """Serve until this process is killed."""
    server = await asyncio.start_unix_server(functools.partial(_pass_on, engine, file), socket, limit=1 << 20)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:4]))
