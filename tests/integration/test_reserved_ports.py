"""The ports of an ended session are not given to another one before every gateway has removed the old route."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.integration.gateway_client import GATEWAY
from tests.integration.internals import AGENT_STATE, GATEWAY_STATE
from tests.integration.inventories import UNREACHABLE, inventory_options
from tests.integration.laboratory import AGENTS, QUEUE, run_on, stored_sessions
from tests.integration.session_requests import SMALL
from tests.integration.sessions import Sessions

pytestmark = pytest.mark.gateway

#: Two ports; a session without apps publishes one.
POOL = {**SMALL, "published_port_pool": "30990-30991"}
AGENT = AGENTS[0]
#: How long released ports are kept for requests that are on their way.
DRAIN_SECONDS = 10


def published_port(name: str) -> int:
    """Return the port of a session on the agent."""
    (stored,) = [session["plan"] for session in stored_sessions()[AGENT] if session["plan"]["name"] == name]
    (port,) = stored["published"]
    return int(port["host_port"])


def reserved_ports() -> list[str]:
    """Return the files of reserved ports: those of live sessions, too."""
    return run_on(AGENT, f"ls {AGENT_STATE}/ports").split()


def test_port_is_kept_until_the_gateway_confirms(agent1_sessions: Sessions, tmp_path: Path) -> None:
    sessions = agent1_sessions
    first, second, third = (f"{sessions.name}-{number}" for number in range(3))
    record = sessions.start(name=first, **POOL).record
    old = published_port(first)
    away = inventory_options(tmp_path, **{GATEWAY: UNREACHABLE})
    ended = sessions.terminate(*away, name=first, queue_path=str(QUEUE))
    assert (ended.code, ended.record["status"]) == (0, "TERMINATED"), ended.output
    assert reserved_ports() == [f"{old}@{record['id']}"]
    assert f"{record['id']}.json" in run_on(GATEWAY, f"ls {GATEWAY_STATE}/routes").split()

    sessions.start(name=second, **POOL)
    other = published_port(second)
    assert {old, other} == {30990, 30991}
    waiting = sessions.create(name=third, **POOL)
    assert waiting.record["status"] == "PENDING", waiting.output
    assert "ended sessions keep 1 until all gateways have confirmed that their routes are gone" in waiting.text

    # The pool is an option of a run.
    pool = {"published_port_pool": POOL["published_port_pool"]}
    assert sessions.run("schedule_sessions", *away, queue_path=str(QUEUE), **pool).code == 0
    assert f"{old}@{record['id']}" in reserved_ports()
    assert sessions.run("schedule_sessions", **pool).code == 0
    assert [name.partition("@")[0] for name in reserved_ports()] == [str(other)]
    assert f"{record['id']}.json" not in run_on(GATEWAY, f"ls {GATEWAY_STATE}/routes").split()
    time.sleep(DRAIN_SECONDS)
    sessions.start(name=third, **POOL)
    assert published_port(third) == old
