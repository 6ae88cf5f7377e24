"""Send a datagram until an answer arrives from that very address and port: `ask_udp.py ADDRESS PORT SECONDS SOURCE`.

An empty source is the one that the kernel chooses.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
    client.bind((sys.argv[4], 0))
    client.connect((sys.argv[1], int(sys.argv[2])))
    client.settimeout(0.5)
    end = time.monotonic() + float(sys.argv[3])
    while time.monotonic() < end:
        with contextlib.suppress(TimeoutError, ConnectionRefusedError):
            client.send(b"hello")
            print(client.recv(2048).decode())
            break
