# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Selects the session that ``repair_session`` repairs: its request is in the queue as long as it lives."""

from __future__ import annotations

from collections.abc import Iterable

from ...module_utils._model.validation import ValidationError
from .._queue.entry import QueueEntry
from .._queue.selection import find_entry
from .._request.run_options import RunOptions


def find_repairable(run: RunOptions, entries: Iterable[QueueEntry]) -> QueueEntry:
    """Return the entry of the session of that name or id.

    Raises :class:`ValidationError` if there is none with its request, or more than one.
    """
    entry = find_entry(run.name, run.id, entries)
    if entry is None or entry.spec is None:
        option, value = ("session_id", run.id) if run.id else ("session_name", run.name)
        raise ValidationError(
            f"{option}: the queue of this control node has no request of {value!r}; run repair_session where the"
            " session was started."
        )
    return entry
