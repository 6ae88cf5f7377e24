"""Who asks: sudo's uid, the host's accounts and groups, and nothing else."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from backendai_manager.errors import RefusedError
from backendai_manager.manager.identity import Account, Accounts, Caller, find_caller, started_by_root
from tests.unit.roles.manager.manager_host import KnownAccounts


def find(uid: str | None, accounts: Accounts | None = None) -> Caller:
    return find_caller(uid, accounts or KnownAccounts(), "users", "operators")


def test_a_user_is_who_sudo_says() -> None:
    assert find("1001") == Caller("alice", 1001, 100, operator=False)


def test_an_operator_need_not_be_a_user() -> None:
    assert find("1003").operator


@pytest.mark.parametrize("uid", [None, "", "alice", "-1", "1001 ", "1001\n", "\u0661\u0660", "0x3e9", "1" * 40, "1e3"])
def test_what_is_no_uid_of_sudo_is_refused(uid: str | None) -> None:
    with pytest.raises(RefusedError, match="started by sudo"):
        find(uid)


@pytest.mark.parametrize(
    ("uid", "sentence"),
    [
        ("1004", "mallory is not in the group users: ask an operator."),
        ("4294967295", "uid 4294967295 has no account on this host whose name can be used."),
    ],
)
def test_who_is_no_user_is_refused(uid: str, sentence: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        find(uid)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("name", ["..", "a/b", "{{x}}", "-rf", "", "a b", ".ssh", "ali\nce"])
def test_a_name_that_could_be_a_path_or_a_template_is_refused(name: str) -> None:
    accounts = KnownAccounts(Account(name, 1001, 100))
    accounts.groups["users"] = [name]
    with pytest.raises(RefusedError, match="has no account on this host whose name can be used"):
        find("1001", accounts)


def test_accounts_and_groups_are_those_of_the_host() -> None:
    accounts, root = Accounts(), Account("root", 0, 0)
    assert accounts.by_uid(0) == accounts.by_name("root") == root
    assert accounts.by_uid(1 << 40) is accounts.by_name("nobody-has-this-name") is None
    assert accounts.in_group(root, "root")
    assert not accounts.in_group(root, "no-such-group")
    assert not accounts.in_group(Account(pwd.getpwnam("nobody").pw_name, 65534, 65534), "root")


@pytest.mark.parametrize(
    ("status", "trusted"),
    [
        ("Name:\tsudo\nUid:\t1001\t0\t0\t0\n", True),
        ("Name:\tsudo\nUid:\t0\t0\t0\t0\n", True),
        ("Name:\tsudo\nUid:\t1001\t1001\t1001\t1001\n", False),
        ("Name:\tx\nUid:\t0\t1001\t0\t0\n", False),
        ("", False),
    ],
)
def test_only_the_word_of_a_process_of_root_counts(tmp_path: Path, status: str, trusted: bool) -> None:
    (tmp_path / "status").write_text(status)
    assert started_by_root(tmp_path) is trusted


def test_a_process_that_is_gone_is_not_trusted(tmp_path: Path) -> None:
    assert not started_by_root(tmp_path / "1")
    assert started_by_root(Path(f"/proc/{os.getpid()}")) is (os.getuid() == 0)
