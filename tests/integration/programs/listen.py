"""Listen on a UDP port, IPv4 and IPv6, until standard input ends, and a second longer: `listen.py PORT`.

Prints `ready` when it listens, and at the end all payloads received, as JSON.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as listener:
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("::", int(sys.argv[1])))
    print("ready", flush=True)
    heard, inputs, end = set(), [listener, sys.stdin], float("inf")
    while time.monotonic() < end:
        readable = select.select(inputs, [], [], 0.2)[0]
        if listener in readable:
            heard.add(listener.recv(2048).decode())
        if sys.stdin in readable:
            inputs.remove(sys.stdin)
            end = time.monotonic() + 1
print(json.dumps(sorted(heard)))
