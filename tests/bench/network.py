"""Compare networks between two agents side by side, in turns: throughput, round trips, and attaching a container.

Round trips are of one byte over TCP, 2000 in a row. ``--wireguard`` provisions the agents for it, and back again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.bench import streams
from tests.bench.attaching import attach_ours, attach_to_swarm
from tests.bench.leftovers import nothing_left
from tests.bench.measured import BenchError
from tests.bench.paths import FAR, NEAR, SWARM_PORT, Shell, Way, encrypted_session, session, swarm, underlay
from tests.integration import laboratory
from tests.integration.firewalls import firewall

PORT, ROUND_TRIPS, SERVED = 7001, 2000, 3600
UNDERLAY, OURS, UNGUARDED, SWARM, UNFILTERED, WIREGUARD = (
    "underlay",
    "ours",
    "ours, without the firewall",
    "Swarm overlay",
    "ours, without bridged filtering",
    "ours, WireGuard",
)
RTT, ONE, FOUR = "round trip, us", "1 stream, Gb/s", "4 streams, Gb/s"
START, JOIN = "network and container, s", "joining a running one, s"
FILTERING = "net.bridge.bridge-nf-call-iptables"

Figures = dict[str, dict[str, list[float]]]
"""By what is measured and by contender."""

RATIOS = (
    (ONE, OURS, SWARM, ">= 1.05"),
    (RTT, OURS, SWARM, "<= 1.00"),
    (ONE, UNFILTERED, SWARM, ""),
    (RTT, UNFILTERED, SWARM, ""),
    (START, OURS, SWARM, "<= 0.40"),
    (JOIN, OURS, SWARM, ""),
    (ONE, OURS, UNGUARDED, ">= 0.98"),
    (FOUR, OURS, UNGUARDED, ">= 0.98"),
    (RTT, OURS, UNGUARDED, ""),
)
"""What is divided by the same of another contender, and what is wanted."""


class Network:
    """All contenders as they stand, and what was measured of them."""

    def __init__(self, shell: Shell, ways: dict[str, Way], seconds: float) -> None:
        self._shell, self._ways, self._seconds = shell, ways, seconds
        self._program = Path(streams.__file__).read_text()
        self.figures: Figures = {}

    @contextlib.contextmanager
    def served(self) -> Iterator[None]:
        """Have somebody who answers at the far end of every way."""
        far = {way.far: way for way in self._ways.values()}
        with contextlib.ExitStack() as stack:
            for way in far.values():
                line = _inside(way.far, "serve", PORT, SERVED)
                server = subprocess.Popen(self._shell.command(FAR, line), stdin=subprocess.PIPE, text=True)
                stack.callback(self._ask, way, "quit")
                if server.stdin:
                    server.stdin.write(self._program)
                    server.stdin.close()
            yield

    def take_turns(self) -> None:
        """Measure everything once, one contender after the other."""
        for what, words in (
            (RTT, ("echo", ROUND_TRIPS)),
            (ONE, ("stream", 1, self._seconds)),
            (FOUR, ("stream", 4, self._seconds)),
        ):
            for name, way in self._ways.items():
                with self._change(name):
                    self._note(what, name, float(self._ask(way, *words)) * (1e6 if what == RTT else 1e-9))
        contenders: dict[str, Callable[[Shell], tuple[float, float]]] = {OURS: attach_ours, SWARM: attach_to_swarm}
        for name, attach in contenders.items() if SWARM in self._ways else ():
            started, joined = attach(self._shell)
            self._note(START, name, started)
            self._note(JOIN, name, joined)

    def _ask(self, way: Way, what: str, *words: object) -> str:
        return self._shell.on(NEAR, _inside(way.near, what, way.address, PORT, *words), self._program)

    def _note(self, what: str, name: str, value: float) -> None:
        self.figures.setdefault(what, {}).setdefault(name, []).append(value)

    def _change(self, name: str) -> contextlib.AbstractContextManager[None]:
        changes = {UNFILTERED: self._unfiltered, UNGUARDED: self._unguarded}
        return changes[name]() if name in changes else contextlib.nullcontext()

    @contextlib.contextmanager
    def _unguarded(self) -> Iterator[None]:
        """Let everybody in on both agents for a while: what it saves is what the session's datagrams pay."""
        try:
            self._shell.everywhere("systemctl stop backendai-heal.timer; nft flush chain inet backendai arrivals")
            yield
        finally:
            self._shell.everywhere("systemctl start backendai-heal.service backendai-heal.timer")

    @contextlib.contextmanager
    def _unfiltered(self) -> Iterator[None]:
        """Switch bridged filtering off on both agents for a while: what it costs is what the session's frames pay."""
        before = {agent: self._shell.on(agent, f"sysctl --values {FILTERING}") for agent in (NEAR, FAR)}
        try:
            self._shell.everywhere(f"sysctl --quiet --write {FILTERING}=0")
            yield
        finally:
            for agent, value in before.items():
                self._shell.on(agent, f"sysctl --quiet --write {FILTERING}={value}")


def _inside(pid: int, *words: object) -> str:
    """Return the line that runs the program, which it reads from its input, in a network namespace."""
    enter = f"nsenter --net=/proc/{pid}/ns/net " if pid else ""
    return f"{enter}python3 - {' '.join(map(str, words))}"


def table(figures: Figures) -> Iterable[str]:
    """Return the lines of medians, and of ratios within each round."""
    for columns in ((RTT, ONE, FOUR), (START, JOIN)):
        if columns[0] not in figures:
            continue
        yield _row("medians", columns)
        for name in figures[columns[0]]:
            yield _row(name, [f"{statistics.median(figures[what][name]):.2f}" for what in columns])
        yield ""
    yield _row("ratios", ("to", "of", "median", "of rounds", "wanted"))
    for what, name, other, wanted in RATIOS:
        if not {name, other} <= figures.get(what, {}).keys():
            continue
        each = [mine / theirs for mine, theirs in zip(figures[what][name], figures[what][other], strict=True)]
        spread = f"{min(each):.2f} to {max(each):.2f}"
        yield _row(name, (other, what, f"{statistics.median(each):.2f}", spread, wanted))


def _row(name: str, cells: Iterable[str]) -> str:
    return f"{name:<34}{''.join(f'{cell:>26}' for cell in cells)}".rstrip()


def main() -> int:
    """Run the benchmark; its exit code says only whether everything worked."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.network", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3, help="how long a stream runs (default: %(default)s)")
    parser.add_argument("--wireguard", action="store_true", help="measure a session over WireGuard too")
    parser.add_argument("--firewall", action="store_true", help="compare with and without the firewall, nothing else")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there")
    options = parser.parse_args()
    if not laboratory.INVENTORY.exists():
        sys.exit("bench: the lab is not up: run `make lab`")
    # Whatever ends it, what was made is taken away.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        shell = Shell(folder)
        before = laboratory.remains()
        # The underlay itself is measured too, and Swarm has another port than it usually has.
        ports = [{"ports": [PORT]}, {"protocol": "udp", "ports": [SWARM_PORT]}]
        stack.enter_context(firewall(allow=ports))
        plain = stack.enter_context(session(shell, folder, "bench-plain", {}))
        ways = {OURS: plain, UNGUARDED: plain}
        if not options.firewall:
            ways = {UNDERLAY: underlay(), SWARM: stack.enter_context(swarm(shell)), **ways, UNFILTERED: plain}
        if options.wireguard:
            ways[WIREGUARD] = stack.enter_context(encrypted_session(shell, folder, "bench-wireguard"))
        network = Network(shell, ways, options.seconds)
        with network.served():
            for number in range(options.rounds):
                print(f"bench: round {number + 1} of {options.rounds}", flush=True)
                network.take_turns()
    print(f"\nFrom {NEAR} to {FAR}; medians of {options.rounds} rounds, streams of {options.seconds:g} s")
    print(f"machine: {os.cpu_count()} cores, load average {load:.1f} before\n")
    print("\n".join(table(network.figures)))
    if options.json:
        options.json.write_text(json.dumps(network.figures, indent=2))
    nothing_left(before)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"bench: {error}")
