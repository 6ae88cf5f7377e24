# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds the session that a user means by its name or id: only the queue says what has a name."""

from __future__ import annotations

from collections.abc import Iterable

from ...module_utils._model.validation import ValidationError
from .entry import TERMINATING, QueueEntry


def find_entry(name: str, session_id: str, entries: Iterable[QueueEntry]) -> QueueEntry | None:
    """Return the session of that id, else the one of that name that lives; if none does, the last that has ended.

    Raises :class:`ValidationError` if several live, or if the id is that of another name.
    """
    if session_id:
        entry = next((entry for entry in entries if entry.id == session_id), None)
        if entry and name and entry.name != name:
            raise ValidationError(f"session_id: {session_id!r} is the id of {entry.name!r}, not of {name!r}.")
        return entry
    named = [entry for entry in entries if entry.name == name]
    live = [entry for entry in named if not entry.has_ended]
    if len(live) > 1:
        ids = ", ".join(sorted(entry.id for entry in live))
        raise ValidationError(f"session_name: {len(live)} sessions are called {name!r}: give session_id ({ids}).")
    return next(iter(live), None) or max(
        named, key=lambda entry: (entry.state == TERMINATING, entry.updated_at, entry.id), default=None
    )
