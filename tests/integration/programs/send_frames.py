"""Send Ethernet frames, given in hexadecimal, out of an interface: `send_frames.py INTERFACE FRAME…`."""

from __future__ import annotations

import socket
import sys

with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
    sender.bind((sys.argv[1], 0))
    for frame in sys.argv[2:]:
        sender.send(bytes.fromhex(frame))
