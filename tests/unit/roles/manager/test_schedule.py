"""What the timer does besides the queue: what may not start, who is gone, and the list for ``--cached``."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from backendai_manager.manager.ownership import KnownSession
from backendai_manager.manager.queue_check import find_orphans
from backendai_manager.manager.runs import Outcome
from backendai_manager.manager.settings import load_settings
from backendai_manager.schedule import schedule
from tests.unit.roles.manager.manager_host import ALICE, BOB, IDS, MALLORY, KnownAccounts, ManagerHost, record

SPEC = {
    "image": "lab/python:1",
    "roles": [],
    "mounts": [],
    "resource_group": "default",
    "network_driver": "vxlan",
    "uid": 1000,
    "gid": 1000,
    "max_lifetime": 0,
    "priority": 10,
    "no_new_privileges": True,
}


def run(host: ManagerHost, code: int = 0) -> int:
    settings = load_settings(host.paths.manager_settings)

    def playbook() -> int:
        host.runs.run("schedule_sessions")
        return code

    return schedule(host.paths, settings, host.accounts, host.runs, playbook)


def ended(host: ManagerHost) -> list[str]:
    return [
        made.request["session_id"] for made in host.runs.made if made.playbook == "terminate_session" and made.request
    ]


def test_the_list_is_kept_for_users_who_want_it_at_once(host: ManagerHost) -> None:
    host.runs.reports["list_sessions"]["session_list_path"] = [record(1, ALICE)]
    assert run(host) == 0
    assert json.loads(host.paths.seen_sessions.read_text()) == [record(1, ALICE)]
    assert host.paths.seen_sessions.stat().st_mode & 0o777 == 0o600
    assert host.runs.playbooks() == ["schedule_sessions", "list_sessions"]


def test_what_waits_is_judged_before_it_can_start(host: ManagerHost) -> None:
    host.keep(1, ALICE, state="PENDING", spec=SPEC)
    host.keep(2, ALICE, state="PENDING", spec={**SPEC, "image": "evil/x"})
    host.keep(3, MALLORY, state="PENDING", spec=SPEC)
    host.keep(4, BOB, state="PENDING", spec=SPEC)
    host.keep(5, BOB, state="PENDING", spec={**SPEC, "image": "evil/x", "no_new_privileges": False})
    host.keep(6, BOB, state="RUNNING", spec={**SPEC, "image": "evil/x"})
    host.accounts.accounts = [ALICE, MALLORY, dataclasses.replace(BOB, uid=2002)]
    assert run(host) == 0
    assert ended(host) == [IDS[2], IDS[3], IDS[4]]
    assert host.runs.playbooks()[3] == "schedule_sessions"


def test_a_bad_policy_does_not_stop_the_queue(host: ManagerHost, capsys: pytest.CaptureFixture[str]) -> None:
    host.policy.write_text("images: 5")
    assert run(host) == 1
    assert "Nothing can be started before an operator corrects it" in capsys.readouterr().err
    assert host.runs.playbooks() == ["schedule_sessions", "list_sessions"]


def test_sessions_of_owners_who_are_gone_end_after_a_time(host: ManagerHost) -> None:
    host.write_settings(orphan_after=3600)
    host.runs.reports["list_sessions"]["session_list_path"] = [record(1, ALICE), record(2, BOB)]
    host.accounts.accounts = [ALICE]
    assert (run(host), ended(host)) == (0, [])
    since = json.loads((host.paths.home / "orphans.json").read_text())
    assert list(since) == [IDS[2]]
    (host.paths.home / "orphans.json").write_text(json.dumps({IDS[2]: since[IDS[2]] - 3600}))
    assert (run(host), ended(host)) == (0, [IDS[2]])


def test_an_end_that_fails_is_said_and_fails_the_unit(host: ManagerHost, capsys: pytest.CaptureFixture[str]) -> None:
    host.keep(2, MALLORY, state="PENDING", spec=SPEC)
    host.runs.failures["terminate_session"] = Outcome(False, "agent1 does not answer", {})
    assert run(host) == 1
    assert f"session {IDS[2]} could not be ended: mallory is not in the group users" in capsys.readouterr().err


def test_a_list_that_fails_leaves_the_last_one(host: ManagerHost) -> None:
    run(host)
    host.runs.failures["list_sessions"] = Outcome(False, "x", {})
    host.runs.reports["list_sessions"] = {}
    assert run(host) == 1
    assert run(host, code=4) == 4
    assert host.paths.seen_sessions.read_text() == "[]"


def orphans(since: dict[str, Any], after: int, now: float = 1000.0) -> tuple[dict[str, float], int]:
    session = KnownSession.from_record(record(1, BOB))
    unowned = KnownSession.from_record(record(2, BOB, uid=None))
    assert session
    assert unowned
    first, due = find_orphans([session, unowned], KnownAccounts(ALICE), since, now, after)
    return first, len(due)


def test_time_counts_from_the_first_run_that_misses_the_owner() -> None:
    assert orphans({}, 100) == ({IDS[1]: 1000.0}, 0)
    assert orphans({IDS[1]: 900.0}, 100) == ({IDS[1]: 900.0}, 1)
    assert orphans({IDS[1]: 1.0}, 0) == ({IDS[1]: 1.0}, 0)
    # A clock that was set back, and a damaged file.
    assert orphans({IDS[1]: 2000.0}, 100) == ({IDS[1]: 1000.0}, 0)
    assert orphans({IDS[1]: "x", IDS[3]: 1.0}, 100) == ({IDS[1]: 1000.0}, 0)
