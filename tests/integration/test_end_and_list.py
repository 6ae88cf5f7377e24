"""The life of a session as its user sees it: listed, damaged and repaired, ended once and for all."""

from __future__ import annotations

import pytest

from tests.integration.laboratory import on, remains
from tests.integration.session_requests import FOUR
from tests.integration.sessions import Sessions

pytestmark = pytest.mark.requests


def test_a_session_is_listed_repaired_and_ended_and_nothing_is_left_of_it(sessions: Sessions) -> None:
    created = sessions.create(**FOUR)
    assert created.code == 0, created.output

    # The list is a table for people, and records for programs.
    run = sessions.run("list_sessions")
    assert run.code == 0, run.output
    assert [record for record in run.record if record["name"] == sessions.name] == [created.record]
    (row,) = [line.split() for line in run.output.splitlines() if line.startswith(sessions.name)]
    agents = ",".join(dict.fromkeys(kernel["agent"] for kernel in created.record["kernels"]))
    assert row[1:5] == ["Multi-node", "4", "RUNNING", agents]

    # A container that died makes it DEGRADED; another run repairs it.
    sub = created.record["kernels"][1]
    on(sub["agent"], f"docker kill {sub['container']}")
    degraded = sessions.listed()[sessions.name]
    assert (degraded["status"], degraded["kernels"][1]["status"]) == ("DEGRADED", "exited")
    repaired = sessions.create("--diff", **FOUR)
    assert repaired.code == 0, repaired.output
    assert f"-container {sub['container']}: exited" in repaired.said
    assert repaired.record == created.record

    # Check mode ends nothing.
    during = remains()
    checked = sessions.terminate("--check", "--diff", name=sessions.name)
    assert checked.code == 0, checked.output
    assert f"-container backendai-{sessions.name}-main1: running" in checked.said
    assert remains() == during != sessions.before

    # It ends by its name; ending it again, by its id, changes nothing.
    ended = sessions.terminate(name=sessions.name)
    assert (ended.code, ended.changed > 0) == (0, True), ended.output
    assert (ended.record["id"], ended.record["status"]) == (created.record["id"], "TERMINATED")
    assert remains() == sessions.before
    again = sessions.terminate(id=created.record["id"])
    assert (again.code, again.changed) == (0, 0), again.output
