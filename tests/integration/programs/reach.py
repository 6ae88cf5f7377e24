"""Probe targets, `[protocol, address, port]` each, concurrently: `reach.py '[["tcp", "192.0.2.7", 22], …]'`.

Prints those that respond, as JSON. Any response counts: a connection, a refusal, an ICMP error.
"""

from __future__ import annotations

import concurrent.futures
import errno
import json
import socket
import sys

TIMEOUT = 2.5
ECHO_REQUEST = bytes([8, 0, 0, 0, 0, 1, 0, 1])
UNUSED_PROTOCOL = 253
KINDS = {"tcp": (socket.SOCK_STREAM, 0), "udp": (socket.SOCK_DGRAM, 0), "icmp": (socket.SOCK_DGRAM, 1)}


def answers(target: list[str | int]) -> bool:
    """Tell whether a target sends any response."""
    protocol, address, port = target
    with socket.socket(socket.AF_INET, *KINDS.get(str(protocol), (socket.SOCK_RAW, UNUSED_PROTOCOL))) as probe:
        probe.settimeout(TIMEOUT)
        try:
            probe.connect((address, port))
            if protocol != "tcp":
                probe.send(ECHO_REQUEST)
                probe.recv(64)
        except OSError as error:
            return error.errno in (errno.ECONNREFUSED, errno.ENOPROTOOPT)
    return True


if __name__ == "__main__":
    targets = json.loads(sys.argv[1])
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        answered = pool.map(answers, targets)
        print(json.dumps([target for target, reachable in zip(targets, answered, strict=True) if reachable]))
