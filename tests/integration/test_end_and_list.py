"""Sessions that end, and the list of those that live."""

from __future__ import annotations

from tests.integration.conftest import Sessions
from tests.integration.laboratory import on, remains
from tests.integration.test_create import MULTI_NODE


def test_nothing_is_left_of_a_session_that_ended(sessions: Sessions) -> None:
    before = remains()
    created = sessions.create(**MULTI_NODE)
    assert created.code == 0, created.output
    assert remains() != before
    ended = sessions.terminate(name=sessions.name)
    assert ended.code == 0, ended.output
    assert ended.record["status"] == "TERMINATED"
    assert ended.record["id"] == created.record["id"]
    assert remains() == before


def test_a_session_ends_by_its_id_and_ending_it_again_changes_nothing(sessions: Sessions) -> None:
    created = sessions.create()
    assert created.code == 0, created.output
    ended = sessions.terminate(id=created.record["id"])
    assert (ended.code, ended.changed > 0) == (0, True), ended.output
    again = sessions.terminate(id=created.record["id"])
    assert (again.code, again.changed) == (0, 0), again.output


def test_check_mode_ends_nothing(sessions: Sessions) -> None:
    assert sessions.create(cluster_size=2).code == 0
    during = remains()
    run = sessions.terminate("--check", "--diff", name=sessions.name)
    assert run.code == 0, run.output
    assert f"-container backendai-{sessions.name}-main1: running" in run.said
    assert remains() == during


def test_the_list_is_a_table_for_people_and_records_for_programs(sessions: Sessions) -> None:
    created = sessions.create(**MULTI_NODE)
    assert created.code == 0, created.output
    run = sessions.run("list_sessions")
    assert run.code == 0, run.output
    assert [record for record in run.record if record["name"] == sessions.name] == [created.record]
    (row,) = [line.split() for line in run.output.splitlines() if line.startswith(sessions.name)]
    assert row[1:5] == [
        "Multi-node",
        "4",
        "RUNNING",
        ",".join(dict.fromkeys(k["agent"] for k in created.record["kernels"])),
    ]


def test_a_container_that_died_makes_the_session_degraded_and_another_run_repairs_it(sessions: Sessions) -> None:
    created = sessions.create(**MULTI_NODE)
    sub = created.record["kernels"][1]
    on(sub["agent"], f"docker kill {sub['container']}")
    listed = sessions.run("list_sessions").record
    (record,) = [one for one in listed if one["name"] == sessions.name]
    assert record["status"] == "DEGRADED"
    assert record["kernels"][1]["status"] == "exited"
    repaired = sessions.create("--diff", **MULTI_NODE)
    assert repaired.code == 0, repaired.output
    assert f"-container {sub['container']}: exited" in repaired.said
    assert repaired.record == created.record
