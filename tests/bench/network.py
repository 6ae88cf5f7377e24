"""Compare networks between two agents in turns: throughput, round trips, and attaching a container.

Round trips are of one byte over TCP, 2000 in a row.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.bench import lab, sessions, streams
from tests.bench.attaching import attach_to_session_network, attach_to_swarm
from tests.bench.leftovers import clean_lab
from tests.bench.paths import FAR, NEAR, SWARM_PORT, NetworkPath, encrypted_session, session, swarm, underlay
from tests.bench.timing import rounds

PORT, SERVED_SECONDS = 7001, 3600
ROUND_TRIPS, STREAM_SECONDS = 2000, 3

# Metrics measured over every path: arguments of the program, and the factor to microseconds or Gb/s.
METRICS: dict[str, tuple[tuple[object, ...], float]] = {
    "round_trip": (("echo", ROUND_TRIPS), 1e6),
    "stream": (("stream", 1, STREAM_SECONDS), 1e-9),
    "streams": (("stream", 4, STREAM_SECONDS), 1e-9),
}

Samples = dict[tuple[str, str], list[float]]

# Ratios by figure: metric, path, and the path to divide by.
RATIOS = {
    "network_stream": ("stream", "session", "swarm"),
    "network_streams": ("streams", "session", "swarm"),
    "network_round_trip": ("round_trip", "session", "swarm"),
    "network_attach": ("attach", "session", "swarm"),
    "network_join": ("join", "session", "swarm"),
    "network_stream_of_underlay": ("stream", "session", "underlay"),
    "firewall_stream": ("stream", "session", "unguarded"),
    "firewall_streams": ("streams", "session", "unguarded"),
    "firewall_round_trip": ("round_trip", "session", "unguarded"),
}
# Metrics reported as absolute values.
ABSOLUTE = {"stream": "gbps", "round_trip": "microseconds"}
ABSOLUTE_PATHS = ("underlay", "swarm", "session", "wireguard")


def measure(count: int) -> dict[str, list[float]]:
    """Return the figures of each round."""
    # For measuring the underlay itself, and for Swarm's non-default port.
    ports = [{"ports": [PORT]}, {"protocol": "udp", "ports": [SWARM_PORT]}]
    with clean_lab(), lab.firewall(allow=ports), contextlib.ExitStack() as stack:
        plain = stack.enter_context(session(f"{sessions.PREFIX}plain", {}))
        paths = {
            "underlay": underlay(),
            "swarm": stack.enter_context(swarm()),
            "session": plain,
            "unguarded": plain,
            "wireguard": stack.enter_context(
                encrypted_session(f"{sessions.PREFIX}wireguard", {"firewall_allow": ports})
            ),
        }
        network = Network(paths)
        with network.running_servers():
            for _number in rounds(count):
                network.take_turns()
    return figures(network.samples)


def figures(samples: Samples) -> dict[str, list[float]]:
    """Return ratios within each round, and absolute values of single paths, given the samples."""
    result = {
        name: [ours / theirs for ours, theirs in zip(samples[metric, path], samples[metric, other], strict=True)]
        for name, (metric, path, other) in RATIOS.items()
    }
    for metric, unit in ABSOLUTE.items():
        result |= {f"{unit}_{path}": samples[metric, path] for path in ABSOLUTE_PATHS}
    return result


class Network:
    """All paths and their samples, by metric and path."""

    def __init__(self, paths: Mapping[str, NetworkPath]) -> None:
        self._paths = paths
        self._program = Path(streams.__file__).read_text()
        self.samples: Samples = {}

    @contextlib.contextmanager
    def running_servers(self) -> Iterator[None]:
        """Run a server at the far end of every path."""
        far = {path.far: path for path in self._paths.values()}
        with contextlib.ExitStack() as stack:
            for path in far.values():
                line = _inside(path.far, "serve", PORT, SERVED_SECONDS)
                server = subprocess.Popen(lab.ssh_command(FAR, line), stdin=subprocess.PIPE, text=True)
                stack.callback(self._run_near, path, "quit")
                if server.stdin:
                    server.stdin.write(self._program)
                    server.stdin.close()
            yield

    def take_turns(self) -> None:
        """Measure everything once, path by path."""
        for metric, (words, factor) in METRICS.items():
            for name, path in self._paths.items():
                with _without_firewall() if name == "unguarded" else contextlib.nullcontext():
                    self._add(metric, name, float(self._run_near(path, *words)) * factor)
        attach: dict[str, Callable[[], tuple[float, float]]] = {
            "session": attach_to_session_network,
            "swarm": attach_to_swarm,
        }
        for name, action in attach.items():
            started, joined = action()
            self._add("attach", name, started)
            self._add("join", name, joined)

    def _run_near(self, path: NetworkPath, command: object, *words: object) -> str:
        return lab.run_on(NEAR, _inside(path.near, command, path.address, PORT, *words), self._program)

    def _add(self, metric: str, path: str, value: float) -> None:
        self.samples.setdefault((metric, path), []).append(value)


def _inside(pid: int, *words: object) -> str:
    """Return the line that runs the program, read from standard input, in a network namespace."""
    enter = f"nsenter --net=/proc/{pid}/ns/net " if pid else ""
    return f"{enter}python3 - {' '.join(map(str, words))}"


@contextlib.contextmanager
def _without_firewall() -> Iterator[None]:
    """Accept everything on both agents: the difference is the cost of the firewall for a session's datagrams."""
    try:
        _on_both("systemctl stop backendai-reconcile.timer; nft flush chain inet backendai ingress")
        yield
    finally:
        _on_both("systemctl start backendai-reconcile.service backendai-reconcile.timer")


def _on_both(line: str) -> None:
    for agent in (NEAR, FAR):
        lab.run_on(agent, line)
