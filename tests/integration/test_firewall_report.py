"""A host that does other work is joined without a dropped connection, reports who connects, and is closed then."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.firewalls import apply_firewall, temporary_firewall
from tests.integration.internals import FIREWALL_STATE, RECONCILE_AGENT, TABLE
from tests.integration.laboratory import Run, address, run_on, run_playbook
from tests.integration.probes import PUBLISHED
from tests.integration.programs import run_line
from tests.integration.reconciliation import reconcile_paused
from tests.integration.session_requests import THREE
from tests.integration.sessions import Sessions

pytestmark = pytest.mark.isolation

CONTAINER, UNIT, LISTENING = "report-foreign", "report-listener", 8077
#: Exists while nobody asks for answers of the services.
OVER = "/tmp/report-over"


@pytest.fixture(scope="module", autouse=True)
def other_work() -> Iterator[None]:
    """Let agent1 do other work: a service of the host, and a container with a published port."""
    container = f"docker run --detach --name {CONTAINER} --publish {PUBLISHED}:{PUBLISHED} lab/python:1"
    stop = f"docker rm --force {CONTAINER}; systemctl stop {UNIT}"
    try:
        run_on("agent1", f"{container} python3 -m http.server {PUBLISHED}")
        run_on("agent1", f"systemd-run --unit {UNIT} python3 -m http.server {LISTENING}")
        yield
    finally:
        run_on("agent1", stop, check=False)


@contextmanager
def asking() -> Iterator[Callable[[], tuple[int, int]]]:
    """Connect to both services of agent1 from outside again and again meanwhile.

    Yield a function that ends it, and returns how often that was, and how many answered.
    """
    urls = [f"http://{address('agent1')}:{port}/" for port in (LISTENING, PUBLISHED)]
    run_on("user1", f"rm -f {OVER}")
    with ThreadPoolExecutor(1) as pool:
        printed = pool.submit(run_on, "user1", run_line("ask_often", OVER, *urls))

        def end() -> tuple[int, int]:
            run_on("user1", f"touch {OVER}")
            asked, answered = map(int, printed.result().split())
            return asked, answered

        try:
            yield end
        finally:
            run_on("user1", f"touch {OVER}")


def ask() -> tuple[int, int]:
    """Connect to both services twice; return how often that was, and how many answered."""
    with asking() as end:
        return end()


def report(folder: Path) -> tuple[Run, dict[str, dict[str, Any]]]:
    """Run ``firewall_report``, and return it and the report of each host."""
    run = run_playbook("firewall_report", folder, {})
    assert run.code == 0, run.output
    return run, {host["name"]: host for host in run.record["hosts"]}


def packets(host: dict[str, Any]) -> dict[tuple[str, int], tuple[str, int]]:
    """Return program and packets of what user1 sent to a host, by protocol and port."""
    return {
        (entry["protocol"], entry["port"]): (entry["program"], entry["packets"])
        for entry in host["traffic"]
        if entry["source"] == address("user1")
    }


@dataclasses.dataclass(frozen=True)
class Joined:
    """How a host was joined: what was asked and answered meanwhile, and the mode that it got."""

    asked: int
    answered: int
    mode: str


@pytest.fixture(scope="module")
def joined() -> Iterator[Joined]:
    """Join agent1 as a host without rules, for which no mode is asked, while others use it."""
    forget = f"rm --force {FIREWALL_STATE} {FIREWALL_STATE.replace('.json', '.confirmed.json')}"
    try:
        with reconcile_paused("agent1", unit=RECONCILE_AGENT):
            run_on("agent1", f"{forget}; nft delete table {TABLE}")
            with asking() as end:
                joining = apply_firewall({"mode": ""}, "--limit", "agent1")
                asked, answered = end()
        assert joining.returncode == 0, joining.stdout
        yield Joined(asked, answered, json.loads(run_on("agent1", f"cat {FIREWALL_STATE}"))["confirmed"]["mode"])
    finally:
        closed = apply_firewall({"mode": "enforce"})
        assert closed.returncode == 0, closed.stdout


def test_a_host_is_joined_in_report_mode_and_no_connection_is_dropped(joined: Joined) -> None:
    assert joined.mode == "report"
    assert joined.asked > 100
    assert joined.answered == joined.asked


def test_the_report_names_who_connects_to_what_and_the_lines_that_allow_it(joined: Joined, tmp_path: Path) -> None:
    run, hosts = report(tmp_path)
    used = packets(hosts["agent1"])
    assert (hosts["agent1"]["mode"], used["tcp", LISTENING][0]) == ("report", "python3")
    assert used["tcp", PUBLISHED][0] == f"container {CONTAINER}"
    # Each connection has several packets.
    assert min(used["tcp", port][1] for port in (LISTENING, PUBLISHED)) > joined.asked / 2
    line = f"- {{protocol: tcp, ports: [{LISTENING}, {PUBLISHED}], sources: [{address('user1')}]}}"
    assert line in run.text
    assert [(name, host["mode"], host["traffic"]) for name, host in hosts.items() if name != "agent1"] == [
        ("agent2", "enforce", []),
        ("agent3", "enforce", []),
        ("gateway1", "enforce", []),
    ]


@pytest.mark.usefixtures("joined")
def test_sessions_come_and_go_without_a_dropped_connection_or_a_lost_count(tmp_path: Path) -> None:
    before = packets(report(tmp_path)[1]["agent1"])
    with asking() as end:
        with Sessions(tmp_path) as sessions:
            sessions.start(**THREE)
        asked, answered = end()
    after = packets(report(tmp_path)[1]["agent1"])
    assert answered == asked
    assert after["tcp", LISTENING][1] >= before["tcp", LISTENING][1] + asked / 2


@pytest.mark.usefixtures("joined")
def test_a_host_in_report_mode_is_said_not_to_be_closed(tmp_path: Path) -> None:
    run = run_playbook("verify_isolation", tmp_path, {"firewall_probe_ports": "1"})
    assert (run.code != 0, run.record["ok"], run.record["not_enforced"]) == (True, False, ["agent1"])
    assert "the firewall of agent1 is in report mode and drops nothing" in run.text
    warned = run_playbook("list_agents", tmp_path, {})
    assert "agent1: the firewall is in report mode, so this host is not closed" in warned.text


def test_what_is_allowed_by_the_lines_is_reported_no_more_and_stays_open_when_enforced(
    joined: Joined, tmp_path: Path
) -> None:
    allow = [
        {name: rule[name] for name in ("protocol", "ports", "sources")}
        for rule in report(tmp_path)[1]["agent1"]["allow"]
    ]
    assert joined.mode == "report"
    with temporary_firewall(mode="enforce", allow=allow):
        asked, answered = ask()
        assert answered == asked
        assert report(tmp_path)[1]["agent1"]["traffic"] == []


@pytest.mark.usefixtures("joined")
def test_an_enforced_host_drops_reports_nothing_and_keeps_its_mode(tmp_path: Path) -> None:
    for mode in ("enforce", ""):
        applied = apply_firewall({"mode": mode})
        assert applied.returncode == 0, applied.stdout
        _asked, answered = ask()
        run, hosts = report(tmp_path)
        assert (answered, hosts["agent1"]["mode"], hosts["agent1"]["traffic"]) == (0, "enforce", [])
        assert "agent1 is closed: firewall_mode is enforce" in run.text
