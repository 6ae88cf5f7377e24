"""Print the banner of a TCP server: `banner.py ADDRESS PORT`."""

from __future__ import annotations

import socket
import sys

with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5) as connection:
    print(connection.recv(64).partition(b"\n")[0].decode())
