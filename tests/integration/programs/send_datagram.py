"""Send a text as one UDP datagram: `send_datagram.py ADDRESS PORT TEXT`."""

from __future__ import annotations

import socket
import sys

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.sendto(sys.argv[3].encode(), (sys.argv[1], int(sys.argv[2])))
