"""Connect to an SSH server, and print how many connections got its banner: `logins.py ADDRESS PORT TOGETHER IN_TURN`.

Prints that of as many at the same time, and then that of as many one after the other.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time

server, together, in_turn = (sys.argv[1], int(sys.argv[2])), int(sys.argv[3]), int(sys.argv[4])


def has_banner(opened: contextlib.ExitStack) -> bool:
    """Open a connection that stays open, and tell whether the server says something, instead of closing it."""
    with contextlib.suppress(OSError):
        connection = opened.enter_context(socket.create_connection(server, timeout=5))
        return connection.recv(64).startswith(b"SSH-2.0-")
    return False


with contextlib.ExitStack() as opened:
    print(sum(has_banner(opened) for _each in range(together)))
accepted = 0
for _each in range(in_turn):
    # Enough for the server to know that the last one has ended.
    time.sleep(0.2)
    with contextlib.ExitStack() as opened:
        accepted += has_banner(opened)
print(accepted)
