"""Capture UDP destination ports on an interface until standard input ends, and a second longer: `sniff.py INTERFACE`.

Prints `ready` when it captures, and at the end the pairs of IP version and port, as JSON.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time

ALL_PROTOCOLS, UDP = 3, 17

with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS)) as tap:
    tap.bind((sys.argv[1], 0))
    print("ready", flush=True)
    ports, inputs, end = set(), [tap, sys.stdin], float("inf")
    while time.monotonic() < end:
        readable = select.select(inputs, [], [], 0.2)[0]
        if sys.stdin in readable:
            inputs.remove(sys.stdin)
            end = time.monotonic() + 1
        if tap not in readable:
            continue
        packet = tap.recv(65536)[14:]
        version = packet[0] >> 4
        protocol, start = (packet[9], (packet[0] & 15) * 4) if version == 4 else (packet[6], 40)
        if version in (4, 6) and protocol == UDP:
            ports.add((version, struct.unpack_from("!H", packet, start + 2)[0]))
print(json.dumps(sorted(ports)))
