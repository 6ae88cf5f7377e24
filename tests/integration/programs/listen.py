"""Listen on a UDP port for some seconds, IPv4 and IPv6: `listen.py PORT SECONDS`.

Prints `ready` when it listens, and at the end all payloads received, as JSON.
"""

from __future__ import annotations

import json
import socket
import sys
import time

with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as listener:
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("::", int(sys.argv[1])))
    print("ready", flush=True)
    heard, end = set(), time.monotonic() + float(sys.argv[2])
    while (remaining := end - time.monotonic()) > 0:
        listener.settimeout(remaining)
        try:
            heard.add(listener.recv(2048).decode())
        except TimeoutError:
            break
print(json.dumps(sorted(heard)))
