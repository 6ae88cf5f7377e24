# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the groups of users on a manager, which their sessions get, before each start.

The manager says by which rules, and who the user is it knows from sudo. So what a user gives changes nothing here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import grp
import os
import pwd
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..module_utils._model.session import MAX_GROUP_NAME, MAX_GROUPS, MAX_ID
from ..module_utils._model.validation import ValidationError
from ._planner.user_groups import Membership

LOGIN_SETTINGS = Path("/etc/login.defs")
DEFAULT_GID_MIN = 1000

_GID_MIN = re.compile(r"^[ \t]*GID_MIN[ \t]+(\d{1,10})\b", re.MULTILINE | re.ASCII)


class Directory:
    """The accounts and groups of this host, from wherever it takes them."""

    def account(self, name: str) -> tuple[int, int] | None:
        """Return the uid and the gid of an account; ``None`` if there is none of that name."""
        try:
            entry = pwd.getpwnam(name)
        except (KeyError, ValueError):
            return None
        return entry.pw_uid, entry.pw_gid

    def groups_of(self, name: str, gid: int) -> Iterable[int]:
        """Return the numbers of all groups of an account, with its first one."""
        return os.getgrouplist(name, gid)

    def number(self, group: str) -> int | None:
        """Return the number of a group; ``None`` if there is none of that name."""
        try:
            return grp.getgrnam(group).gr_gid
        except (KeyError, ValueError):
            return None

    def name(self, number: int) -> str:
        """Return the name of a group; empty if it has none."""
        try:
            return grp.getgrgid(number).gr_name
        except (KeyError, OverflowError):
            return ""

    def own_groups(self) -> set[int]:
        """Return the groups of the account that this process is."""
        groups = {os.getgid(), os.getegid(), *os.getgroups()}
        with contextlib.suppress(KeyError):
            entry = pwd.getpwuid(os.getuid())
            groups.update(os.getgrouplist(entry.pw_name, entry.pw_gid))
        return groups


@dataclasses.dataclass(frozen=True)
class GroupRules:
    """Which groups of their users sessions get: those ``allowed`` by name, all with ``None``; never the ``closed``."""

    allowed: tuple[str, ...] | None = None
    closed: tuple[str, ...] = ()

    @classmethod
    def from_variable(cls, value: Mapping[str, object]) -> GroupRules | None:
        """Return the rules that the manager gives; ``None`` without any, so that sessions get no groups."""
        if not value:
            return None
        allowed, closed = value.get("allowed"), value.get("closed")
        return cls(
            tuple(map(str, allowed)) if isinstance(allowed, (list, tuple)) else None,
            tuple(map(str, closed)) if isinstance(closed, (list, tuple)) else (),
        )


def read_groups(
    user: str, uid: int, rules: GroupRules, directory: Directory, login_settings: Path = LOGIN_SETTINGS
) -> Membership:
    """Return the groups of a user that a session may have, without their names.

    They are those of people, from ``GID_MIN`` on. Names are not looked up for each: a user may be in thousands. Raises
    :class:`ValidationError` unless there is an account of that name and uid.
    """
    account = directory.account(user)
    if account is None or account[0] != uid:
        raise ValidationError(f"groups: {user} with uid {uid} is no account of this host, so its groups are not known.")
    least = read_gid_min(login_settings)
    found = {number for number in directory.groups_of(user, account[1]) if max(least, 1) <= number <= MAX_ID}
    if rules.allowed is not None:
        found &= {number for name in rules.allowed if (number := directory.number(name)) is not None}
    closed = {number for name in rules.closed if (number := directory.number(name)) is not None}
    return Membership(user, uid, tuple(sorted(found - closed - directory.own_groups())))


def with_names(groups: Membership, owners: Iterable[int], directory: Directory) -> Membership:
    """Return groups with the names that a plan may need: of too many, those of ``owners`` of folders."""
    # One more may be left out, that of the user's own work.
    numbers = groups.numbers if len(groups.numbers) <= MAX_GROUPS + 1 else {*owners}.intersection(groups.numbers)
    names = {number: directory.name(number) for number in numbers}
    return dataclasses.replace(groups, names={number: name for number, name in names.items() if _fits(name)})


def _fits(name: str) -> bool:
    return 0 < len(name) <= MAX_GROUP_NAME and name.isprintable()


def read_gid_min(path: Path) -> int:
    """Return the first number of groups of people on this host."""
    try:
        found = _GID_MIN.findall(path.read_text(errors="replace"))
    except OSError:
        found = []
    # As shadow's tools do, of several the last.
    return int(found[-1]) if found else DEFAULT_GID_MIN
