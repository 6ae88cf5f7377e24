"""Send a datagram to each of many ports of an address, and print how many the kernel refused to send."""

from __future__ import annotations

import socket
import sys

address, number = sys.argv[1], int(sys.argv[2])
refused = 0
for port in range(20000, 20000 + number):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        try:
            sender.sendto(b"x", (address, port))
        except OSError:
            refused += 1
print(refused)
