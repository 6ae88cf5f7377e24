"""Compare networks between two agents in turns: throughput, CPU time, round trips, and attaching a container.

Short measurements of the same path against itself differ by up to a factor of two, so paths are compared in many turns,
each in the opposite order of the one before: what changes with time affects both sides of a ratio alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.bench import lab, rulesets, sessions, streams
from tests.bench.attaching import attach_to_session_network, attach_to_swarm
from tests.bench.errors import BenchError
from tests.bench.leftovers import clean_lab
from tests.bench.paths import FAR, NEAR, SWARM_PORT, NetworkPath, encrypted_session, session, swarm, underlay
from tests.bench.rulesets import MANY_SESSIONS, UNGUARDED, WITHOUT_TABLES, Rulesets
from tests.bench.timing import rounds

PORT, SERVED_SECONDS = 7001, 3600
ROUND_TRIPS, STREAM_SECONDS = 2000, 1
# Turns of all compared paths, whatever the number of rounds; each gives one pair of values for a ratio.
PAIRS = 20

Samples = dict[tuple[str, str], list[float]]


@dataclasses.dataclass(frozen=True)
class Measurement:
    """A command of the program with its ``words``, and the ``paths`` that it measures, those to be compared adjacent.

    ``factors`` has the name of each value that the command prints, and the factor to µs, Gb/s or ns.
    """

    command: str
    words: tuple[object, ...]
    factors: Mapping[str, float]
    paths: tuple[str, ...]


def measurements(interface: str) -> tuple[Measurement, ...]:
    """Return the measurements of a turn; ``interface`` is that of the near agent on the underlay."""
    return (
        Measurement(
            "echo",
            (ROUND_TRIPS,),
            {"round_trip": 1e6},
            ("underlay", "swarm", "session", UNGUARDED),
        ),
        Measurement(
            "stream",
            (1, STREAM_SECONDS, interface),
            {"stream": 1e-9, "cpu_per_packet": 1e9},
            ("underlay", "swarm", "session", UNGUARDED, MANY_SESSIONS, WITHOUT_TABLES),
        ),
        Measurement(
            "stream",
            (4, STREAM_SECONDS, interface),
            {"streams": 1e-9, "streams_cpu_per_packet": 1e9},
            ("swarm", "session", UNGUARDED),
        ),
    )


# Ratios by figure: metric, path, and the path to divide by.
RATIOS = {
    "network_stream": ("stream", "session", "swarm"),
    "network_streams": ("streams", "session", "swarm"),
    "network_round_trip": ("round_trip", "session", "swarm"),
    "network_attach": ("attach", "session", "swarm"),
    "network_join": ("join", "session", "swarm"),
    "network_stream_of_underlay": ("stream", "session", "underlay"),
    "firewall_stream": ("stream", "session", UNGUARDED),
    "firewall_streams": ("streams", "session", UNGUARDED),
    "firewall_round_trip": ("round_trip", "session", UNGUARDED),
    "firewall_cpu_per_packet": ("cpu_per_packet", "session", UNGUARDED),
    "many_sessions_stream": ("stream", MANY_SESSIONS, WITHOUT_TABLES),
    "many_sessions_cpu_per_packet": ("cpu_per_packet", MANY_SESSIONS, WITHOUT_TABLES),
}
# Metrics reported as absolute values.
ABSOLUTE = {"stream": "gbps", "round_trip": "microseconds"}
ABSOLUTE_PATHS = ("underlay", "swarm", "session", "wireguard")


def measure(count: int) -> dict[str, list[float]]:
    """Return the figures of each turn, and those of attaching and of WireGuard in each of ``count`` rounds."""
    # For measuring the underlay itself, and for Swarm's non-default port.
    ports = [{"ports": [PORT]}, {"protocol": "udp", "ports": [SWARM_PORT]}]
    with clean_lab(), lab.firewall(allow=ports), contextlib.ExitStack() as stack:
        paths = {
            "underlay": underlay(),
            "session": stack.enter_context(session(f"{sessions.PREFIX}plain", {})),
            "swarm": stack.enter_context(swarm()),
            "wireguard": stack.enter_context(
                encrypted_session(f"{sessions.PREFIX}wireguard", {"firewall_allow": ports})
            ),
        }
        network = Network(paths, _underlay_interface())
        with network.running_servers():
            with rulesets.stopped_reconciliation():
                network.compare(PAIRS, Rulesets())
            for _number in rounds(count):
                network.measure_once("wireguard")
                network.attach()
    return figures(network.samples)


def figures(samples: Samples) -> dict[str, list[float]]:
    """Return ratios within each turn or round, and absolute values of single paths, given the samples."""
    result = {
        name: [ours / theirs for ours, theirs in zip(samples[metric, path], samples[metric, other], strict=True)]
        for name, (metric, path, other) in RATIOS.items()
    }
    for metric, unit in ABSOLUTE.items():
        result |= {f"{unit}_{path}": samples[metric, path] for path in ABSOLUTE_PATHS}
    return result


def in_order(paths: Sequence[str], turn: int) -> list[str]:
    """Return the paths in the order of a turn, counted from 0: as given, and in the opposite order in odd turns."""
    return list(paths if turn % 2 == 0 else reversed(paths))


def interface_of(listing: str) -> str:
    """Return the name of the only interface in a listing of ``ip -json address``. Raises :class:`BenchError`."""
    # Some versions list an empty object for each interface that was not selected.
    names = [link["ifname"] for link in json.loads(listing) if link]
    if len(names) != 1:
        raise BenchError(f"{NEAR}: one interface with the underlay address is needed, not {', '.join(names) or 'none'}")
    return str(names[0])


class Network:
    """All paths by name, and their samples by metric and path; ``interface`` is the near agent's on the underlay."""

    def __init__(self, paths: Mapping[str, NetworkPath], interface: str) -> None:
        self._paths = paths
        self._measurements = measurements(interface)
        self._program = Path(streams.__file__).read_text()
        self.samples: Samples = {}

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

    def compare(self, turns: int, tables: Rulesets) -> None:
        """Measure all compared paths in turns. A state of the tables counts as a path: the session's, in that state."""
        for turn in range(turns):
            if turn % 5 == 0:
                print(f"bench: turn {turn + 1} of {turns}", flush=True)
            for measurement in self._measurements:
                for name in in_order(measurement.paths, turn):
                    tables.apply(rulesets.APPLIED if name in self._paths else name)
                    self._measure(measurement, name)

    def measure_once(self, name: str) -> None:
        """Measure the absolute values of a path."""
        for measurement in self._measurements:
            if ABSOLUTE.keys() & measurement.factors.keys():
                self._measure(measurement, name)

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

    def _measure(self, measurement: Measurement, name: str) -> None:
        path = self._paths.get(name, self._paths["session"])
        values = self._run_near(path, measurement.command, *measurement.words).split()
        for (metric, factor), value in zip(measurement.factors.items(), values, strict=True):
            self._add(metric, name, float(value) * factor)

    def _run_near(self, path: NetworkPath, command: str, *words: object) -> str:
        return lab.run_on(NEAR, _inside(path.near, command, path.address, PORT, *words), self._program)

    def _add(self, metric: str, path: str, value: float) -> None:
        self.samples.setdefault((metric, path), []).append(value)


def _inside(pid: int, *words: object) -> str:
    """Return the line that runs the program, read from standard input, in a network namespace."""
    enter = f"nsenter --net=/proc/{pid}/ns/net " if pid else ""
    return f"{enter}python3 - {' '.join(map(str, words))}"


def _underlay_interface() -> str:
    return interface_of(lab.run_on(NEAR, f"ip -json -4 address show to {lab.underlay_address(NEAR)}"))
