"""Accounts and groups of files as those in ``/etc``, with the account that a process is."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ansible_collections.backendai.cluster.plugins.plugin_utils.user_groups import Directory

PASSWD = """\
root:x:0:0:root:/root:/bin/sh
backendai:x:990:990::/var/lib/backendai-manager:/bin/sh
alice:x:1001:1001::/home/alice:/bin/sh
bob:x:1002:100::/home/bob:/bin/sh
"""
GROUP = """\
root:x:0:alice
disk:x:6:alice
users:x:100:
docker:x:998:alice
backendai:x:990:
alice:x:1001:
project-a:x:2000:alice,bob
project-b:x:2001:alice
project-c:x:2002:bob
backendai-operators:x:3000:alice
storage:x:3001:backendai,alice
huge:x:4294967290:alice
"""


@dataclasses.dataclass
class FileDirectory(Directory):
    """The accounts and groups of two files; ``looked_up`` are the groups whose names were asked for."""

    passwd: Path
    group: Path
    process: str = "backendai"
    looked_up: list[int] = dataclasses.field(default_factory=list)

    def account(self, name: str) -> tuple[int, int] | None:
        return next(((int(uid), int(gid)) for user, _x, uid, gid, *_rest in _read(self.passwd) if user == name), None)

    def groups_of(self, name: str, gid: int) -> list[int]:
        return [gid, *(int(number) for _group, _x, number, members in _read(self.group) if name in members.split(","))]

    def number(self, group: str) -> int | None:
        return next((int(number) for name, _x, number, _members in _read(self.group) if name == group), None)

    def name(self, number: int) -> str:
        self.looked_up.append(number)
        return next((name for name, _x, other, _members in _read(self.group) if int(other) == number), "")

    def own_groups(self) -> set[int]:
        account = self.account(self.process)
        return {*self.groups_of(self.process, account[1])} if account else set()


def _read(path: Path) -> list[list[str]]:
    return [line.split(":") for line in path.read_text().splitlines()]


def directory_in(folder: Path, passwd: str = PASSWD, group: str = GROUP) -> FileDirectory:
    """Return the accounts and groups of files that are written to a folder."""
    (folder / "passwd").write_text(passwd)
    (folder / "group").write_text(group)
    return FileDirectory(folder / "passwd", folder / "group")
