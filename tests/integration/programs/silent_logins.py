"""Connect to an SSH server many times without a login, wait, and print how many connections it serves."""

from __future__ import annotations

import socket
import sys
import time

host, number, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
opened = [socket.create_connection((host, 22), timeout=30) for _ in range(number)]
served = 0
for connection in opened:
    try:
        served += connection.recv(4) == b"SSH-"
    except OSError:
        continue
time.sleep(seconds)
print(served)
