"""Send a part over one TCP connection for each line of standard input: `send_parts.py HOST PORT BYTES`.

Prints `sent` once the other side has acknowledged a part.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
import termios
import time

with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10) as connection:
    for _line in sys.stdin:
        connection.sendall(bytes(int(sys.argv[3])))
        until = time.monotonic() + 20
        # What is in the queue of the socket has not been acknowledged.
        while struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]:
            if time.monotonic() > until:
                sys.exit("not acknowledged")
            time.sleep(0.05)
        print("sent", flush=True)
