"""The program that measures streams and round trips, and the texts of the kernel that it reads."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import streams
from tests.unit.running_gateway import unused_ports

STAT = "cpu  100 20 30 4000 500 6 7 80 9999 9999\ncpu0 1 2 3 4 5 6 7 8 0 0\n"
INTERFACES = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier comp.
    lo:  900      90    0    0    0     0          0         0      900      90    0    0    0     0       0          0
  eth0:  1000     17    1    2    3     4          5         6      2000     25    7    8    9    10      11         12
"""


def test_busy_time_leaves_out_idle_time_and_waiting_and_guests() -> None:
    assert streams.busy_ticks(STAT) == 100 + 20 + 30 + 6 + 7 + 80


def test_busy_share_is_that_of_the_whole_machine() -> None:
    later = "cpu  103 20 30 4005 501 6 8 80 9999 9999\ncpu0 9 9 9 9 9 9 9 9 0 0\n"
    assert streams.busy_share(STAT, later) == pytest.approx(4 / 10)
    assert streams.busy_share(STAT, STAT) == 0


def test_packets_are_those_sent_and_received() -> None:
    assert streams.packets(INTERFACES, "eth0") == 17 + 25


@pytest.mark.parametrize("name", ["eth", "face |bytes", "eth1"])
def test_a_missing_interface_is_an_error(name: str) -> None:
    with pytest.raises(LookupError, match="the agent has no interface"):
        streams.packets(INTERFACES, name)


def test_a_measurement_begins_when_the_machine_is_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat, waited = tmp_path / "stat", []
    stat.write_text(STAT)
    loads = iter(["cpu 190 20 30 4010 500 6 7 80", "cpu 191 20 30 4109 500 6 7 80", "cpu 999 20 30 4109 500 6 7 80"])

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        stat.write_text(next(loads))

    monkeypatch.setattr(streams, "STAT", stat)
    monkeypatch.setattr(streams.time, "sleep", sleep)
    streams.await_idle()
    assert waited == [streams.IDLE_WINDOW] * 2


def test_a_measurement_begins_although_the_machine_is_never_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat, busy, sleep = tmp_path / "stat", iter(range(1000)), time.sleep
    stat.write_text(STAT)

    def burn(seconds: float) -> None:
        sleep(seconds)
        stat.write_text(f"cpu {1000 + 10 * next(busy)} 20 30 4000 500 6 7 80")

    monkeypatch.setattr(streams, "STAT", stat)
    monkeypatch.setattr(streams.time, "sleep", burn)
    started_at = time.monotonic()
    streams.await_idle()
    assert streams.IDLE_LIMIT <= time.monotonic() - started_at < 60


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
        rate, cpu_per_packet = run("stream", "127.0.0.1", port, "2", "0.3", "lo")
        assert rate > 1e6
        assert 0 < cpu_per_packet < 0.01


def test_both_ends_are_on_different_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    cores: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {2, 5, 7})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _process, wanted: cores.append(wanted))
    monkeypatch.setattr(streams, "serve", lambda *_arguments: None)
    monkeypatch.setattr(streams, "await_idle", lambda: None)
    monkeypatch.setattr(streams, "echo", lambda *_arguments: 1.0)
    streams.main(["serve", "7001", "1"])
    streams.main(["echo", "192.0.2.1", "7001", "1"])
    assert cores == [{7}, {2}]


def test_streams_that_pass_no_packet_over_the_interface_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dev").write_text(INTERFACES)
    monkeypatch.setattr(streams, "INTERFACES", tmp_path / "dev")
    with serving() as port, pytest.raises(ConnectionError, match="passed eth0 without a packet"):
        streams.stream("127.0.0.1", int(port), 1, 0.05, "eth0")
