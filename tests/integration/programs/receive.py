"""Print how many bytes the first client sends: `receive.py PORT`. Prints `ready` when it listens."""

from __future__ import annotations

import socket
import sys

with socket.create_server(("", int(sys.argv[1]))) as server:
    server.settimeout(60)
    print("ready", flush=True)
    connection = server.accept()[0]
    with connection:
        connection.settimeout(60)
        received = 0
        while data := connection.recv(1 << 16):
            received += len(data)
print(received)
