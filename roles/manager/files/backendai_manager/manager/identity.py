# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who asks: known from sudo's uid alone, so that accounts, groups and passwords are those of the host."""

from __future__ import annotations

import dataclasses
import grp
import os
import pwd
import re
from pathlib import Path

from ..errors import RefusedError

# Such a name is one part of a path, and no template.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


@dataclasses.dataclass(frozen=True)
class Account:
    """An account of the manager."""

    name: str
    uid: int
    gid: int


@dataclasses.dataclass(frozen=True)
class Caller:
    """A user of the command, or an operator."""

    name: str
    uid: int
    gid: int
    operator: bool = False


class Accounts:
    """The accounts and groups of the manager, from wherever it takes them."""

    def by_uid(self, uid: int) -> Account | None:
        """Return the account with that uid."""
        try:
            return _account(pwd.getpwuid(uid))
        except (KeyError, OverflowError):
            return None

    def by_name(self, name: str) -> Account | None:
        """Return the account with that name."""
        try:
            return _account(pwd.getpwnam(name))
        except (KeyError, ValueError):
            return None

    def in_group(self, account: Account, group: str) -> bool:
        """Return whether an account is a member of a group; of one that does not exist, nobody is."""
        try:
            return grp.getgrnam(group).gr_gid in os.getgrouplist(account.name, account.gid)
        except KeyError:
            return False


def _account(entry: pwd.struct_passwd) -> Account:
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def find_caller(uid_of_sudo: str | None, accounts: Accounts, users_group: str, operators_group: str) -> Caller:
    """Return who has called sudo. Raises :class:`RefusedError` for all who may not use the command."""
    if uid_of_sudo is None or not re.fullmatch(r"[0-9]{1,10}", uid_of_sudo):
        raise RefusedError("this program is started by sudo, with the command backendai.")
    account = accounts.by_uid(int(uid_of_sudo))
    if account is None or not _NAME.fullmatch(account.name):
        raise RefusedError(f"uid {int(uid_of_sudo)} has no account on this host whose name can be used.")
    operator = accounts.in_group(account, operators_group)
    if not operator and not accounts.in_group(account, users_group):
        raise RefusedError(f"{account.name} is not in the group {users_group}: ask an operator.")
    return Caller(account.name, account.uid, account.gid, operator)


def started_by_root(process: Path) -> bool:
    """Return whether the process with a folder in ``/proc`` acts as root, as sudo does; only then its word counts."""
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return False
    # Effective, saved and file system uid. The real one decides nothing: sudo may set it to root's, or keep the user's.
    return [line.split()[2:] for line in lines if line.startswith("Uid:")] == [["0"] * 3]
