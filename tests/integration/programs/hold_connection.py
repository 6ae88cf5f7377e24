"""Hold a TCP connection to port 22 of a host while rules change: `hold_connection.py ADDRESS`.

Prints `open` once connected. After a line on standard input it sends data, and prints the response, or
`silence`.
"""

from __future__ import annotations

import socket
import sys

with socket.create_connection((sys.argv[1], 22), timeout=6) as connection:
    connection.recv(256)
    print("open", flush=True)
    sys.stdin.readline()
    connection.sendall(b"hello\r\n")
    try:
        print(connection.recv(256))
    except TimeoutError:
        print("silence")
