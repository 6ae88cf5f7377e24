"""Connect to an SSH server many times without a login, wait, and print how many connections it has not closed."""

from __future__ import annotations

import socket
import sys
import time

host, number, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
opened = [socket.create_connection((host, 22), timeout=30) for _number in range(number)]
time.sleep(seconds)
kept = 0
for connection in opened:
    connection.setblocking(False)
    try:
        while connection.recv(1024):
            pass
    except BlockingIOError:
        kept += 1
    except OSError:
        continue
print(kept)
