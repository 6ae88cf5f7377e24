"""The groups of users on a manager: which of them sessions may have."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError
from ansible_collections.backendai.cluster.plugins.plugin_utils.user_groups import (
    Directory,
    GroupRules,
    read_gid_min,
    read_groups,
    with_names,
)
from tests.unit.builders import REPOSITORY
from tests.unit.group_files import PASSWD, FileDirectory, directory_in

OPERATORS = ("backendai-operators",)
OWN = GroupRules(None, OPERATORS)


@pytest.fixture
def directory(tmp_path: Path) -> FileDirectory:
    return directory_in(tmp_path)


def numbers(directory: Directory, rules: GroupRules = OWN, user: str = "alice", uid: int = 1001) -> tuple[int, ...]:
    return read_groups(user, uid, rules, directory, Path("/absent")).numbers


def test_sessions_have_the_groups_of_people_that_their_user_is_in(directory: FileDirectory) -> None:
    assert numbers(directory) == (1001, 2000, 2001)
    assert numbers(directory, user="bob", uid=1002) == (2000, 2002)


def test_what_a_policy_names_is_all_that_members_get(directory: FileDirectory) -> None:
    assert numbers(directory, GroupRules(("project-b", "project-c", "absent"), OPERATORS)) == (2001,)
    assert numbers(directory, GroupRules((), OPERATORS)) == ()


@pytest.mark.parametrize("name", ["root", "disk", "docker", "backendai", *OPERATORS, "storage", "huge"])
def test_groups_of_the_host_of_operators_and_of_the_account_are_never_given(
    directory: FileDirectory, name: str
) -> None:
    number = directory.number(name)
    assert number not in numbers(directory)
    assert numbers(directory, GroupRules((name,), OPERATORS)) == ()


@pytest.mark.parametrize(("user", "uid"), [("alice", 1002), ("mallory", 1001), ("", 0)])
def test_nobody_gets_the_groups_of_an_account_with_another_uid(directory: FileDirectory, user: str, uid: int) -> None:
    with pytest.raises(ValidationError, match=rf"^groups: {user} with uid {uid} is no account of this host"):
        numbers(directory, user=user, uid=uid)


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("GID_MIN\t\t\t 2001\n", 2001),
        ("# GID_MIN 5\nSYS_GID_MIN 100\nGID_MIN 500 # people\nGID_MAX 60000\n", 500),
        ("GID_MIN 500\nGID_MIN 600\n", 600),
        ("GID_MIN\n3000\n", 1000),
        ("GID_MIN many\n", 1000),
        ("GID_MIN 12345678901\n", 1000),
        ("\udcff GID_MIN 5", 1000),
        ("", 1000),
    ],
)
def test_groups_of_people_begin_where_the_host_says(tmp_path: Path, text: str, least: int) -> None:
    (tmp_path / "login.defs").write_text(text, errors="surrogateescape")
    assert read_gid_min(tmp_path / "login.defs") == least


def test_a_host_that_says_nothing_begins_at_1000(tmp_path: Path) -> None:
    assert read_gid_min(tmp_path / "absent") == 1000


def test_a_host_whose_groups_of_people_begin_at_zero_gives_no_root(directory: FileDirectory, tmp_path: Path) -> None:
    (tmp_path / "login.defs").write_text("GID_MIN 0\n")
    given_numbers = read_groups("alice", 1001, OWN, directory, tmp_path / "login.defs").numbers
    assert given_numbers == (6, 998, 1001, 2000, 2001)


@given(st.sets(st.integers(0, (1 << 32) - 1) | st.integers(980, 1010), max_size=80), st.sets(st.integers(980, 1010)))
def test_whatever_groups_there_are_none_is_given_that_must_not_be(groups: set[int], own: set[int]) -> None:
    members = {number: [*["alice"] * (number in groups), *["backendai"] * (number in own)] for number in groups | own}
    names = {number: "backendai-operators" if number == 1007 else f"g{number}" for number in members}
    lines = [f"{names[number]}:x:{number}:{','.join(listed)}\n" for number, listed in members.items()]
    with tempfile.TemporaryDirectory() as folder:
        found = numbers(directory_in(Path(folder), group="".join(lines)))
    assert {*found} == {number for number in {1001, *groups} if 1000 <= number < 1 << 31} - own - {1007}
    assert list(found) == sorted(found)


def test_names_are_looked_up_of_what_a_plan_may_need(directory: FileDirectory) -> None:
    few = with_names(read_groups("alice", 1001, OWN, directory, Path("/absent")), [], directory)
    assert few.names == {1001: "alice", 2000: "project-a", 2001: "project-b"}


def test_a_name_that_no_plan_may_have_is_left_out(tmp_path: Path) -> None:
    odd = directory_in(tmp_path, PASSWD, f"{'x' * 129}:x:2000:alice\ntab\tname:x:2001:alice\n")
    assert with_names(read_groups("alice", 1001, OWN, odd, Path("/absent")), [], odd).names == {}


MANY = 65_000
ASK = """
import sys, time
sys.path[:0] = sys.argv[1:]
from pathlib import Path
from ansible_collections.backendai.cluster.plugins.plugin_utils.user_groups import *
directory = Directory()
began = time.monotonic()
groups = with_names(read_groups("alice", 1001, GroupRules(None, ("operators",)), directory), [5000, 7], directory)
print(len(groups.numbers), dict(groups.names), time.monotonic() - began, directory.own_groups() >= {0})
"""


def test_a_user_in_65000_groups_of_this_host_is_read_in_a_moment(tmp_path: Path) -> None:
    # As the system has them, in a mount namespace with other files.
    (tmp_path / "passwd").write_text(PASSWD)
    (tmp_path / "group").write_text("".join(f"g{number}:x:{number}:alice\n" for number in range(1000, 1000 + MANY)))
    script = 'mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/group" /etc/group && shift && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, "-c", ASK]
    began = time.monotonic()
    answer = subprocess.run(
        [*command, str(REPOSITORY / ".venv/collections")], capture_output=True, text=True, check=True, env=os.environ
    )
    assert time.monotonic() - began < 20
    count, _space, rest = answer.stdout.partition(" ")
    assert int(count) == MANY
    assert rest.startswith("{5000: 'g5000'} ")
    assert rest.endswith(" True\n")


def test_rules_come_from_the_manager() -> None:
    given_rules = GroupRules.from_variable({"allowed": ["project-a"], "closed": ["operators"]})
    assert given_rules == GroupRules(("project-a",), ("operators",))
    assert GroupRules.from_variable({"allowed": "own", "closed": ["operators"]}) == GroupRules(None, ("operators",))
    assert GroupRules.from_variable({}) is None


def test_the_accounts_of_this_host_are_known() -> None:
    directory = Directory()
    assert directory.account("root") == (0, 0)
    assert (directory.number("root"), directory.name(0)) == (0, "root")
    assert 0 in directory.groups_of("root", 0)
    assert (directory.account("no\0body"), directory.number("no such group")) == (None, None)
    assert (directory.name(1999999999), directory.name(1 << 70)) == ("", "")
