"""Create and remove sessions one after the other, and print one line of JSON for each: the seconds of its parts."""

from __future__ import annotations

import hashlib
import json
import sys

from tests.bench.agent_program.parts import PartTimes
from tests.bench.agent_program.sessions import Sessions, time_inner_parts

YARDSTICK = 1 << 24


def yardstick(times: PartTimes) -> None:
    """Do work that is independent of the number of sessions, as a measure of the machine's current speed."""
    with times.measure("  yardstick"):
        hashlib.sha256(bytes(YARDSTICK)).digest()


def main() -> None:
    """Create and remove the requested number of sessions; leave nothing behind, even after an error.

    All of them run until the input ends.
    """
    request = json.loads(sys.argv[1])
    times = PartTimes()
    time_inner_parts(times)
    sessions = Sessions(request, times)
    try:
        sessions.remove_all()
        times.take()
        for number in range(request["count"]):
            yardstick(times)
            sessions.create(number)
            print_parts("created", times)
        sys.stdin.read()
        for session_id in sessions.ids():
            yardstick(times)
            sessions.remove(session_id)
            print_parts("removed", times)
    finally:
        sessions.remove_all()


def print_parts(kind: str, times: PartTimes) -> None:
    """Print the parts as one line and reset them."""
    print(json.dumps({"kind": kind, "seconds": times.take()}), flush=True)
