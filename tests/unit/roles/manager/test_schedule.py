"""What the timer does besides the queue: what may not start, who is gone, and the list for ``--cached``."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from backendai_manager.manager.identity import Account
from backendai_manager.manager.ownership import KnownSession
from backendai_manager.manager.queue_check import Disallowed, find_due, find_orphans, judge_queue
from backendai_manager.manager.runs import Outcome, Runs
from backendai_manager.manager.settings import load_settings
from backendai_manager.schedule import _run_playbook, schedule
from tests.unit.roles.manager.manager_host import (
    ALICE,
    BOB,
    IDS,
    LIMITS,
    MALLORY,
    NOBODYS,
    KnownAccounts,
    ManagerHost,
    record,
)

SPEC = {
    "image": "lab/python:1",
    "roles": [],
    "mounts": [],
    "resource_group": "default",
    "network_driver": "vxlan",
    "uid": NOBODYS,
    "gid": NOBODYS,
    "max_lifetime": 0,
    "priority": 10,
}


def run(host: ManagerHost, code: int = 0) -> int:
    settings = load_settings(host.paths.manager_settings)

    def playbook(more: Mapping[str, Any]) -> int:
        host.runs.run("schedule_sessions", trusted=more)
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
    host.keep(3, ALICE, state="PENDING", spec={**SPEC, "uid": 0})
    # A run that has died may leave it to the next one.
    host.keep(4, BOB, state="CREATING", spec={**SPEC, "image": "evil/x"})
    host.keep(5, BOB, state="PENDING", spec={**SPEC, "image": "evil/x"}, limited=False)
    host.keep(6, BOB, state="RUNNING", spec={**SPEC, "image": "evil/x"})
    assert run(host) == 0
    assert ended(host) == [IDS[2], IDS[3]]
    assert host.runs.playbooks()[2] == "schedule_sessions"
    # No run starts them meanwhile.
    assert [made.trusted for made in host.runs.made[:3]] == [{"__session_held": IDS[2:5], **LIMITS}] * 3


def test_an_owner_is_looked_up_once_however_many_sessions_wait(
    host: ManagerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accounts may be those of a directory that takes milliseconds to answer."""
    looked_up = []

    def by_name(accounts: KnownAccounts, name: str) -> Account | None:
        looked_up.append(name)
        return next((account for account in accounts.accounts if account.name == name), None)

    monkeypatch.setattr(KnownAccounts, "by_name", by_name)
    for number in range(1, 6):
        host.keep(number, ALICE, state="PENDING", spec=SPEC)
    settings = load_settings(host.paths.manager_settings)
    assert judge_queue(host.paths, settings, host.accounts).disallowed == {}
    assert looked_up == [ALICE.name]


def test_users_sessions_wait_while_there_is_no_policy(host: ManagerHost, capsys: pytest.CaptureFixture[str]) -> None:
    host.keep(1, ALICE, state="PENDING", spec=SPEC)
    host.keep(2, BOB, state="PENDING", spec=SPEC, limited=False)
    host.policy.write_text("images: 5")
    assert run(host) == 1
    assert "Nothing can be started before an operator corrects it" in capsys.readouterr().err
    assert host.runs.playbooks() == ["schedule_sessions", "list_sessions"]
    assert host.runs.made[0].trusted == {"__session_held": [IDS[1]]}


def missing(host: ManagerHost) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((host.paths.home / "missing.json").read_text())
    return found


def test_what_waits_outlives_an_outage_of_accounts(host: ManagerHost, capsys: pytest.CaptureFixture[str]) -> None:
    for number, account in ((1, ALICE), (2, BOB), (3, MALLORY)):
        host.keep(number, account, state="PENDING", spec=SPEC)
    accounts = host.accounts.accounts
    host.accounts.accounts = [dataclasses.replace(BOB, uid=2002), MALLORY]
    assert [run(host) for _round in range(5)] == [0] * 5
    assert ended(host) == []
    assert capsys.readouterr().err.count("does not start, and is ended if that stays so") == 3
    assert host.runs.made[0].trusted == {"__session_held": IDS[1:4], **LIMITS}
    # Bob and his group are there again; time passes for the others.
    host.accounts.accounts = [account for account in accounts if account != ALICE]
    path = host.paths.home / "missing.json"
    path.write_text(json.dumps({name: [since - 900, runs] for name, (since, runs) in missing(host).items()}))
    assert run(host) == 0
    assert ended(host) == [IDS[1], IDS[3]]
    assert sorted(missing(host)) == [IDS[1], IDS[3]]


def test_an_account_is_missed_at_several_runs_and_for_some_time() -> None:
    gone = {IDS[1]: Disallowed("gone", later=True)}
    assert find_due(gone, {}, 1000.0) == ({IDS[1]: [1000.0, 1]}, [])
    # The timer did not run for long.
    assert find_due(gone, {IDS[1]: [1.0, 1]}, 1000.0) == ({IDS[1]: [1.0, 2]}, [])
    assert find_due(gone, {IDS[1]: [101.0, 9]}, 1000.0) == ({IDS[1]: [101.0, 10]}, [])
    assert find_due(gone, {IDS[1]: [100.0, 2]}, 1000.0) == ({IDS[1]: [100.0, 3]}, [IDS[1]])
    # It was there meanwhile; a damaged file; a clock that was set back.
    assert find_due({}, {IDS[1]: [1.0, 9]}, 1000.0) == ({}, [])
    for damaged in ("x", [1.0], ["x", 1], None):
        assert find_due(gone, {IDS[1]: damaged}, 1000.0) == ({IDS[1]: [1000.0, 1]}, [])
    assert find_due(gone, {IDS[1]: [2000.0, 9]}, 1000.0) == ({IDS[1]: [1000.0, 10]}, [])


def test_the_playbook_of_the_timer_gets_what_is_held(host: ManagerHost, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = host.paths.home / "seen"
    programs = host.paths.programs / "bin"
    programs.mkdir()
    (programs / "ansible-playbook").write_text(
        f'#!/bin/sh\necho "$1" "$2" > {seen}; cat "${{3#@}}" >> {seen}; exit 4\n'
    )
    (programs / "ansible-playbook").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    runs = Runs(host.paths, "", "", lambda: False, "timer")
    assert _run_playbook(host.paths, runs, ["-i"], {"__session_held": IDS[1:2]}) == 4
    assert Path(seen).read_text() == f'-i -e\n{{"__session_held": ["{IDS[1]}"]}}'


def test_sessions_of_owners_who_are_gone_end_after_a_time(host: ManagerHost) -> None:
    host.write_settings(orphan_after=3600)
    host.runs.reports["list_sessions"]["session_list_path"] = [record(1, ALICE), record(2, BOB)]
    host.accounts.accounts = [ALICE]
    assert (run(host), ended(host)) == (0, [])
    since = json.loads((host.paths.home / "orphans.json").read_text())
    assert list(since) == [IDS[2]]
    (host.paths.home / "orphans.json").write_text(json.dumps({IDS[2]: since[IDS[2]] - 3600}))
    # By the way, what waits is not started.
    host.keep(3, ALICE, "other", state="PENDING", spec=SPEC)
    host.accounts.groups["users"] = []
    assert (run(host), ended(host)) == (0, [IDS[2]])
    assert host.runs.made[-1].trusted == {"__session_held": [IDS[3]], **LIMITS}


def test_an_end_that_fails_is_said_and_fails_the_unit(host: ManagerHost, capsys: pytest.CaptureFixture[str]) -> None:
    host.keep(2, ALICE, state="PENDING", spec={**SPEC, "image": "evil/x"})
    host.runs.failures["terminate_session"] = Outcome(False, "agent1 does not answer", {})
    assert run(host) == 1
    assert f"session {IDS[2]} could not be ended: image: evil/x is not allowed" in capsys.readouterr().err


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
