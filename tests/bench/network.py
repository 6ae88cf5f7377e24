"""Compare networks between two agents in turns: throughput, round trips, and attaching a container.

Short measurements of the same path against itself differ by up to a factor of two, so paths are compared in many turns,
each in the opposite order of the one before: what changes with time affects both sides of a ratio alike.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.bench import lab, streams
from tests.bench.paths import (
    FAR,
    NEAR,
    SWARM_PORT,
    SWARM_TCP,
    SWARM_UDP,
    NetworkPath,
    attach_to_session_network,
    attach_to_swarm,
    session,
    swarm,
    underlay,
)
from tests.bench.timing import rounds
from tests.integration.firewalls import temporary_firewall

PORT, SERVED_SECONDS = 7001, 3600
ROUND_TRIPS, STREAM_SECONDS = 2000, 1
# Turns of all compared paths, whatever the number of rounds; each gives one pair of values for a ratio.
PAIRS = 20

# The path of the session while its agents accept all that arrives; the difference is the cost of a datagram's rules.
UNGUARDED = "unguarded"
CHAIN = "inet backendai ingress"

# By metric: the words of the program's command, and the paths that it measures, those to be compared adjacent.
MEASUREMENTS: Mapping[str, tuple[Sequence[object], Sequence[str]]] = {
    "round_trip": (("echo", ROUND_TRIPS), ("swarm", "session")),
    "stream": (("stream", 1, STREAM_SECONDS), ("underlay", "swarm", "session", UNGUARDED)),
    "streams": (("stream", 4, STREAM_SECONDS), ("swarm", "session")),
}
# Ratios by figure: metric, path, and the path to divide by.
RATIOS = {
    "network_stream": ("stream", "session", "swarm"),
    "network_streams": ("streams", "session", "swarm"),
    "network_round_trip": ("round_trip", "session", "swarm"),
    "network_attach": ("attach", "session", "swarm"),
    "network_join": ("join", "session", "swarm"),
    "network_stream_of_underlay": ("stream", "session", "underlay"),
    "firewall_stream": ("stream", "session", UNGUARDED),
}


def measure(count: int) -> dict[str, list[float]]:
    """Return the ratios of each turn, and those of attaching in each of ``count`` rounds."""
    # For measuring the underlay itself, and what a swarm needs.
    ports = [{"ports": [PORT, *SWARM_TCP]}, {"protocol": "udp", "ports": [SWARM_PORT, *SWARM_UDP]}]
    with lab.clean_lab(), temporary_firewall(allow=ports), contextlib.ExitStack() as stack:
        paths = {
            "underlay": underlay(),
            "session": stack.enter_context(session(f"{lab.PREFIX}network")),
            "swarm": stack.enter_context(swarm()),
        }
        network = Network(paths)
        with network.running_servers(), stopped_reconciliation():
            network.compare(PAIRS)
        for _number in rounds(count):
            network.attach()
    return network.figures()


def in_order(paths: Sequence[str], turn: int) -> list[str]:
    """Return the paths in the order of a turn, counted from 0: as given, and in the opposite order in odd turns."""
    return list(paths if turn % 2 == 0 else reversed(paths))


@contextlib.contextmanager
def stopped_reconciliation() -> Iterator[None]:
    """Stop reconciliation on all agents, which share the machine's cores; afterwards it restores their tables."""
    service, timer = "backendai-reconcile.service", "backendai-reconcile.timer"
    try:
        # A run that has begun is waited for.
        lab.run_on_each(dict.fromkeys(lab.AGENTS, f"systemctl stop {timer} && systemctl start {service}"))
        yield
    finally:
        lab.run_on_each(dict.fromkeys(lab.AGENTS, f"systemctl start {service} {timer}"))


@contextlib.contextmanager
def without_firewall() -> Iterator[None]:
    """Empty the chain of both agents that all datagrams pass, for a while."""
    chains = {agent: lab.run_on(agent, f"nft list chain {CHAIN}") for agent in (NEAR, FAR)}
    try:
        lab.run_on_each(dict.fromkeys(chains, f"nft flush chain {CHAIN}"))
        yield
    finally:
        for agent, chain in chains.items():
            lab.run_on(agent, "nft --file -", f"flush chain {CHAIN}\n{chain}\n")


class Network:
    """All paths by name, and their samples by metric and path."""

    def __init__(self, paths: Mapping[str, NetworkPath]) -> None:
        self._paths = paths
        self._program = Path(streams.__file__).read_text()
        self._samples: dict[tuple[str, str], list[float]] = {}

    @contextlib.contextmanager
    def running_servers(self) -> Iterator[None]:
        """Run a server at the far end of every path."""
        with contextlib.ExitStack() as stack:
            for path in self._paths.values():
                line = _inside(path.far, "serve", PORT, SERVED_SECONDS)
                server = subprocess.Popen(lab.ssh_command(FAR, line), stdin=subprocess.PIPE, text=True)
                stack.callback(self._run_near, path, "quit")
                if server.stdin:
                    server.stdin.write(self._program)
                    server.stdin.close()
            yield

    def compare(self, turns: int) -> None:
        """Measure all compared paths in turns."""
        for turn in range(turns):
            if turn % 5 == 0:
                print(f"bench: turn {turn + 1} of {turns}", flush=True)
            for metric, (words, names) in MEASUREMENTS.items():
                for name in in_order(names, turn):
                    with without_firewall() if name == UNGUARDED else contextlib.nullcontext():
                        path = self._paths["session" if name == UNGUARDED else name]
                        self._add(metric, name, float(self._run_near(path, *words)))

    def attach(self) -> None:
        """Measure attaching to each network once."""
        actions: dict[str, Callable[[], tuple[float, float]]] = {
            "session": attach_to_session_network,
            "swarm": attach_to_swarm,
        }
        for name, action in actions.items():
            started, joined = action()
            self._add("attach", name, started)
            self._add("join", name, joined)

    def figures(self) -> dict[str, list[float]]:
        """Return the ratios within each turn or round."""
        return {
            name: [
                ours / theirs
                for ours, theirs in zip(self._samples[metric, path], self._samples[metric, other], strict=True)
            ]
            for name, (metric, path, other) in RATIOS.items()
        }

    def _run_near(self, path: NetworkPath, command: object, *words: object) -> str:
        return lab.run_on(NEAR, _inside(path.near, command, path.address, PORT, *words), self._program)

    def _add(self, metric: str, path: str, value: float) -> None:
        self._samples.setdefault((metric, path), []).append(value)


def _inside(pid: int, *words: object) -> str:
    """Return the line that runs the program, read from standard input, in a network namespace."""
    enter = f"nsenter --net=/proc/{pid}/ns/net " if pid else ""
    return f"{enter}python3 - {' '.join(map(str, words))}"
