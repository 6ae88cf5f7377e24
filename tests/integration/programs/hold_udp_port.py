"""Hold a UDP port of all IPv4 addresses until killed: `hold_udp_port.py PORT`."""

from __future__ import annotations

import signal
import socket
import sys

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
    holder.bind(("", int(sys.argv[1])))
    signal.pause()
