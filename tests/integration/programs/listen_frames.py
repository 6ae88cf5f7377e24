"""Listen to frames of one EtherType on all interfaces: `listen_frames.py ETHERTYPE`.

It listens until standard input ends, and a second longer. Prints `ready` when it listens, and at the end all payloads
received, as JSON. A bridge hands a frame to such a listener, as to a daemon, only after its hooks; to one that captures
all types, before.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

HEADER = 14

with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(int(sys.argv[1]))) as listener:
    print("ready", flush=True)
    heard, inputs, end = set(), [listener, sys.stdin], float("inf")
    while time.monotonic() < end:
        readable = select.select(inputs, [], [], 0.2)[0]
        if listener in readable:
            frame, (_interface, _kind, direction, *_rest) = listener.recvfrom(2048)
            if direction != socket.PACKET_OUTGOING:
                heard.add(frame[HEADER:].decode())
        if sys.stdin in readable:
            inputs.remove(sys.stdin)
            end = time.monotonic() + 1
print(json.dumps(sorted(heard)))
