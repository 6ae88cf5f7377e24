"""Keep many connections without a login open to an SSH server, and count those that it accepts, until a file exists.

`silent_logins.py HOST NUMBER KEPT OVER` connects again where the server has closed a connection. The highest number it
kept at once is in the file KEPT, once all connections have been tried.
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

host, number, file, over = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
opened: list[socket.socket] = []
most = 0


def is_kept(connection: socket.socket) -> bool:
    """Tell whether the server has not closed a connection."""
    try:
        while connection.recv(1024):
            pass
    except BlockingIOError:
        return True
    except OSError:
        pass
    connection.close()
    return False


def connect() -> socket.socket:
    """Connect, and read without waiting from then on."""
    connection = socket.create_connection((host, 22), timeout=60)
    connection.setblocking(False)
    return connection


while not over.exists():
    while len(opened) < number:
        opened.append(connect())
    time.sleep(2)
    opened = [connection for connection in opened if is_kept(connection)]
    most = max(most, len(opened))
    file.write_text(str(most))
