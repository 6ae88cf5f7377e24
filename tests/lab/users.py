"""The people of manager1: two users of different groups, and an operator. None has a password."""

from __future__ import annotations

from dataclasses import dataclass

from tests.lab.engine import Engine
from tests.lab.hosts import container_name
from tests.lab.identity import MANAGER, State


@dataclass(frozen=True)
class User:
    """An account; its primary group is its own team's."""

    name: str
    uid: int
    team: str
    group: str


USERS = (
    User("alice", 2001, "physics", "backendai-users"),
    User("bob", 2002, "biology", "backendai-users"),
    User("carol", 2003, "operations", "backendai-operators"),
)
#: The machine may log in as each of them, with the lab's key.
_SCRIPT = """\
set -eu
while read -r name uid team group; do
    getent group "$team" > /dev/null || groupadd "$team"
    getent group "$group" > /dev/null || groupadd --system "$group"
    getent passwd "$name" > /dev/null ||
        useradd --uid "$uid" --gid "$team" --groups "$group" --create-home --shell /bin/bash "$name"
    install -d -m 700 -o "$name" -g "$team" "/home/$name/.ssh"
    install -m 600 -o "$name" -g "$team" /root/.ssh/authorized_keys "/home/$name/.ssh/"
done
"""


def ensure_users(engine: Engine, state: State) -> None:
    """Create the accounts that are missing."""
    lines = "".join(f"{user.name} {user.uid} {user.team} {user.group}\n" for user in USERS)
    container = container_name(state, engine.lab, MANAGER)
    engine.docker("exec", "--interactive", container, "sh", "-c", _SCRIPT, stdin=lines.encode())
