# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the manager's queue says of its sessions: read without Ansible, which would take half a second to import."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .ownership import ID, KnownSession

PENDING, CREATING, RUNNING = "PENDING", "CREATING", "RUNNING"
TERMINATING, TERMINATED = "TERMINATING", "TERMINATED"


class Queue:
    """The folder of the queue; a file that cannot be read is no entry."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield all entries, one after the other: together they may be large."""
        try:
            names = sorted(os.listdir(self._path))
        except OSError:
            return
        for name in names:
            entry = self.entry(name.removesuffix(".json")) if name.endswith(".json") else None
            if entry:
                yield entry

    def entry(self, session_id: str) -> dict[str, Any] | None:
        """Return the entry of a session."""
        if not ID.fullmatch(session_id):
            return None
        try:
            entry = json.loads((self._path / f"{session_id}.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        valid = isinstance(entry, dict) and entry.get("id") == session_id and isinstance(entry.get("record"), dict)
        return entry if valid else None

    def sessions(self) -> list[KnownSession]:
        """Return what is known of each session, ended ones as well."""
        return [known for entry in self.entries() if (known := session_of_entry(entry))]


def session_of_entry(entry: Mapping[str, Any]) -> KnownSession | None:
    """Return what an entry says of its session."""
    record = entry["record"]
    owner = {"user": entry.get("user"), "uid": entry.get("user_uid", record.get("uid"))}
    ended = entry.get("state") in (TERMINATING, TERMINATED)
    state = {"status": TERMINATED if ended else PENDING}
    known = KnownSession.from_record(
        {"id": entry["id"], "name": entry.get("name"), **owner, **state, "created_at": entry.get("enqueued_at")}
    )
    return dataclasses.replace(known, ending=entry.get("state") == TERMINATING) if known else None
