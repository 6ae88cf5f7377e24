"""Agents that lack the rules of their engine, and whose underlay has a new name, while a session runs there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.containers import all_can_log_in
from tests.integration.internals import RECONCILE_AGENT
from tests.integration.laboratory import address, run_on, run_on_all
from tests.integration.session_requests import FOUR, TWO
from tests.integration.sessions import Sessions, StartedSession, started_session
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedSession]:
    """Four containers on three agents with two engine versions; in the end a second run changes nothing."""
    with started_session(tmp_path_factory.mktemp("restore"), **FOUR) as session:
        yield session
        run_on_all(f"systemctl start {RECONCILE_AGENT}.service")
        unchanged = session.create_again()
        assert (unchanged.code, unchanged.changed) == (0, 0), unchanged.output
        assert unchanged.record == session.record


def test_agent_without_rules_of_its_engine_gets_no_session_until_that_restarts(
    session: StartedSession, tmp_path: Path
) -> None:
    kernels = session.kernels
    run_on("agent2", f"nft flush ruleset; systemctl start {RECONCILE_AGENT}.service", check=False)
    assert "restart the engine" in run_on("agent2", f"journalctl --unit {RECONCILE_AGENT} --lines 20 --no-pager")
    verified = session.sessions.run("verify_session", name=session.record["name"])
    assert verified.code != 0
    assert "rules of the engine" in verified.output
    with Sessions(tmp_path) as others:
        run = others.create(**TWO, name=others.name, designated_agents=["agent2"])
        assert run.record["status"] == "PENDING"
        assert "agent2: the engine's own rules are missing" in run.text
    run_on("agent2", "systemctl restart docker")
    wait_until(lambda: all_can_log_in(kernels))
    assert session.sessions.run("verify_session", name=session.record["name"]).code == 0


def test_sessions_outlive_a_new_name_of_the_underlay_interface(session: StartedSession, tmp_path: Path) -> None:
    interfaces = json.loads(run_on("agent2", f"ip -j addr show to {address('agent2')}"))
    (name,) = [link["ifname"] for link in interfaces if link]
    run_on("agent2", f"ip link set dev {name} name uplink0 && systemctl start {RECONCILE_AGENT}.service")
    try:
        assert all_can_log_in(session.kernels)
        verified = session.sessions.run("verify_session", name=session.record["name"])
        assert verified.code == 0, verified.output
        with started_session(tmp_path, **TWO, designated_agents=["agent1", "agent2"]) as other:
            assert all_can_log_in(other.kernels)
    finally:
        run_on("agent2", f"ip link set dev uplink0 name {name} && systemctl start {RECONCILE_AGENT}.service")
    assert all_can_log_in(session.kernels)
