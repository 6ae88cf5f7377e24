"""Answer UDP datagrams on a port with their content, from no chosen address: `echo_udp.py PORT COUNT`."""

from __future__ import annotations

import socket
import sys

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
    server.bind(("0.0.0.0", int(sys.argv[1])))
    for _datagram in range(int(sys.argv[2])):
        server.sendto(*server.recvfrom(2048))
