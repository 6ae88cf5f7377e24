"""Whose a session is, which one a name means, and what others see of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from backendai_manager.errors import RefusedError
from backendai_manager.manager.identity import Account, Caller
from backendai_manager.manager.ownership import KnownSession, find_session, not_found, redact, visible_records
from tests.unit.roles.manager.manager_host import ALICE, BOB, IDS, KnownAccounts, record, stranger

A, B = Caller("alice", 1001, 100), Caller("bob", 1002, 100)
OPERATOR = Caller("carol", 1003, 100, operator=True)


def known(number: int, account: Account, name: str = "train", status: str = "RUNNING", **fields: Any) -> KnownSession:
    found = KnownSession.from_record(record(number, account, name, status, **fields))
    assert found
    return found


def test_the_owner_has_both_name_and_uid() -> None:
    session = known(1, ALICE)
    assert session.belongs_to(A)
    assert not session.belongs_to(dataclasses.replace(A, uid=1009))
    assert not session.belongs_to(dataclasses.replace(A, name="alicia"))
    assert not known(1, ALICE, uid=None).belongs_to(A)
    assert not known(1, ALICE, uid="1001").belongs_to(A)


@pytest.mark.parametrize(
    ("accounts", "there"),
    [
        (KnownAccounts(), True),
        (KnownAccounts(BOB), False),
        (KnownAccounts(Account("alice", 2001, 100)), False),
        (KnownAccounts(Account("alicia", 1001, 100)), False),
    ],
)
def test_an_owner_is_gone_when_name_or_uid_is(accounts: KnownAccounts, there: bool) -> None:
    assert known(1, ALICE).has_owner(accounts) is there


def test_of_two_sessions_of_one_name_each_user_means_the_own_one() -> None:
    sessions = [known(1, ALICE), known(2, BOB)]
    assert [found.id for caller in (A, B) if (found := find_session(sessions, "train", caller))] == IDS[1:3]


@pytest.mark.parametrize("word", ["train", IDS[2]])
def test_a_session_of_somebody_else_is_found_by_operators_only(word: str) -> None:
    sessions = [known(2, BOB)]
    assert find_session(sessions, word, A) is None
    assert find_session(sessions, word, OPERATOR) == sessions[0]


def test_the_refusal_is_the_same_for_what_is_not_there_and_what_is_somebody_elses() -> None:
    assert str(not_found("train", A)) == "there is no session train of yours; backendai list shows what there is."
    assert str(not_found("train", OPERATOR)) == "there is no session train; backendai list shows what there is."


def test_operators_name_one_of_several_by_its_id() -> None:
    with pytest.raises(RefusedError, match=f"several sessions are named train; use one of the ids {IDS[1]}, {IDS[2]}."):
        find_session([known(1, ALICE), known(2, BOB)], "train", OPERATOR)


def test_an_id_is_no_name_that_looks_like_it() -> None:
    named = known(1, ALICE, name=IDS[2])
    assert find_session([named, known(2, ALICE, "other")], IDS[2], A) == known(2, ALICE, "other")
    ended = known(2, ALICE, "other", "TERMINATED")
    assert find_session([named, ended], IDS[2], A) == ended
    assert find_session([named, known(2, BOB, "other")], IDS[2], A) == named


def test_of_ended_sessions_a_name_means_the_last() -> None:
    sessions = [known(1, ALICE, status="TERMINATED"), known(2, ALICE, status="TERMINATED")]
    assert find_session(sessions, "train", A) is None
    found = find_session(sessions, "train", A, ended=True)
    assert found is not None
    assert found.id == IDS[2]


def test_a_name_means_the_session_that_lives_rather_than_one_that_is_to_be_removed_from_agents() -> None:
    ending = dataclasses.replace(known(2, ALICE, status="TERMINATED"), ending=True)
    assert find_session([known(1, ALICE), ending], "train", A) == known(1, ALICE)
    assert find_session([known(1, ALICE, status="TERMINATED"), ending], "train", A) == ending


def test_the_records_of_others_show_neither_what_they_wrote_nor_a_way_in() -> None:
    full = record(2, BOB, error="bad: hunter2", reason="hunter2", pending={"reason": "hunter2"}, network={"name": "x"})
    full["mounts"] = [{"target": "/hunter2", "read_only": False}]
    shown = redact(full)
    assert set(shown) == set(full)
    assert "hunter2" not in str(shown)
    assert {name: shown[name] for name in ("apps", "mounts", "host_keys", "network", "error")} == {
        "apps": [],
        "mounts": [],
        "host_keys": None,
        "network": None,
        "error": None,
    }
    assert (shown["kernels"][0]["agent"], "address" in shown["kernels"][0]) == ("agent1", False)
    assert (shown["name"], shown["user"], shown["status"]) == ("train", "bob", "RUNNING")


def test_users_list_their_own_sessions_and_operators_all_of_all() -> None:
    records = [
        record(1, ALICE),
        record(2, BOB),
        {"id": None, "name": "x"},
        {"id": "../x", "user": "alice", "uid": 1001},
        stranger(3),
        record(4, ALICE, recorded=False),
    ]
    assert visible_records(records, A, everybody=False) == [records[0]]
    assert visible_records(records, A, everybody=True) == [records[0], redact(records[1])]
    assert visible_records(records, OPERATOR, everybody=True) == [*records[:2], *records[4:]]
    assert visible_records(records, OPERATOR, everybody=False) == []
