"""The program that measures streams and round trips."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import streams
from tests.unit.running_gateway import unused_ports


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Run a server on loopback and yield its port; it has to end after ``quit``."""
    (port,) = map(str, unused_ports(1))
    with subprocess.Popen([sys.executable, streams.__file__, "serve", port, "60"]) as server:
        try:
            yield port
            run("quit", "127.0.0.1", port)
            assert server.wait(10) == 0
        finally:
            server.kill()


def run(*words: str) -> list[float]:
    """Run the program as agents do, its source on standard input, and return the numbers that it prints."""
    source = Path(streams.__file__).read_text()
    output = subprocess.run([sys.executable, "-", *words], input=source, capture_output=True, text=True, check=False)
    assert output.returncode == 0, output.stderr
    return [float(word) for word in output.stdout.split()]


def test_program_measures_round_trips_and_streams() -> None:
    with serving() as port:
        (seconds,) = run("echo", "127.0.0.1", port, "20")
        assert 0 < seconds < 1
        (rate,) = run("stream", "127.0.0.1", port, "2", "0.3")
        assert rate > 1e6


def test_both_ends_are_on_different_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    cores: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {2, 5, 7})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _process, wanted: cores.append(wanted))
    monkeypatch.setattr(streams, "serve", lambda *_arguments: None)
    monkeypatch.setattr(streams, "echo", lambda *_arguments: 1.0)
    streams.main(["serve", "7001", "1"])
    streams.main(["echo", "192.0.2.1", "7001", "1"])
    assert cores == [{7}, {2}]
