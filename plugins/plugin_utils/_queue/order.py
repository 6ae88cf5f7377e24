# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order of a queue while its sessions start, in steps whose cost hardly grows with its length."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping

from .entry import CREATING, PENDING, QueueEntry
from .policy import place_in_order

_Arrival = tuple[float, str]


class WaitingOrder:
    """PENDING sessions in the order of :func:`sort_pending`, each once, as starts change who is due and the shares.

    ``shares`` are those of users, to be updated by the caller as sessions start; they must not shrink. A due session is
    no longer counted as skipped, so each is counted ``max_skips`` times at most.
    """

    def __init__(self, entries: Iterable[QueueEntry], policy: str, shares: Mapping[str, float], max_skips: int) -> None:
        self._policy, self._shares, self._max_skips = policy, shares, max_skips
        self._waiting: dict[str, QueueEntry] = {}
        self.skipped: dict[str, int] = {}
        self._tried: set[str] = set()
        self._judged: dict[str, bool] = {}
        self._due: list[_Arrival] = []
        # By resource group and priority: the due sessions, and those that may still be skipped, by arrival.
        self._blocking: dict[str, dict[int, list[_Arrival]]] = {}
        self._passable: dict[str, dict[int, list[_Arrival]]] = {}
        # Sessions whose order among each other never changes, the first one last; the first ones are in a heap.
        self._lines: dict[tuple[int, str], list[QueueEntry]] = {}
        for entry in sorted((e for e in entries if e.state in (PENDING, CREATING)), key=lambda e: e.arrival_key):
            self._waiting[entry.id], self.skipped[entry.id] = entry, entry.skipped
            if entry.skipped >= max_skips:
                self._make_due(entry)
            elif entry.state == PENDING:
                group = self._passable.setdefault(entry.resource_group, {})
                group.setdefault(entry.priority, []).append(entry.arrival_key)
                user = entry.user if policy == "drf" else ""
                self._lines.setdefault((entry.priority, user), []).append(entry)
        self._heads: list[tuple[tuple[int, float, float, str], tuple[int, str]]] = []
        for key, line in self._lines.items():
            line.sort(key=self._place, reverse=True)
            self._push_head(key)

    def next(self) -> QueueEntry | None:
        """Return the session to try next; ``None`` if each has been tried."""
        while self._due:
            session_id = heapq.heappop(self._due)[1]
            if session_id not in self._tried:
                return self._take(session_id)
        while self._heads:
            place, key = heapq.heappop(self._heads)
            line = self._lines[key]
            entry = line[-1]
            tried, outdated = entry.id in self._tried, self._place(entry) != place
            if tried or not outdated:
                line.pop()
            self._push_head(key)
            if not tried and not outdated:
                return self._take(entry.id)
        return None

    def started(self, started: QueueEntry) -> None:
        """Remove a session that starts, and count it for those that it skips, as :func:`count_skips` does."""
        del self._waiting[started.id]
        group = self._passable.get(started.resource_group, {})
        for priority in [priority for priority in group if priority >= started.priority]:
            kept = []
            arrivals = group[priority]
            for position, arrival in enumerate(arrivals):
                if arrival >= started.arrival_key:
                    kept += arrivals[position:]
                    break
                session_id = arrival[1]
                if session_id not in self._waiting:
                    continue
                self.skipped[session_id] += 1
                if self.skipped[session_id] < self._max_skips:
                    kept.append(arrival)
                else:
                    self._make_due(self._waiting[session_id])
            group[priority] = kept

    def first_ahead(self, entry: QueueEntry, blocks: Callable[[QueueEntry], bool]) -> QueueEntry | None:
        """Return the earliest due session that an entry has to wait behind, as :func:`blocked_by` does.

        ``blocks`` is asked, at most once for each due session, whether others wait behind it at all.
        """
        found: QueueEntry | None = None
        limit = entry.arrival_key
        for priority, arrivals in self._blocking.get(entry.resource_group, {}).items():
            while priority >= entry.priority and arrivals and arrivals[0] < limit:
                other = self._waiting.get(arrivals[0][1])
                if other is not None and self._blocks(other, blocks):
                    found, limit = other, other.arrival_key
                else:
                    heapq.heappop(arrivals)
        return found

    def _blocks(self, entry: QueueEntry, blocks: Callable[[QueueEntry], bool]) -> bool:
        if entry.id not in self._judged:
            self._judged[entry.id] = blocks(entry)
        return self._judged[entry.id]

    def _make_due(self, entry: QueueEntry) -> None:
        if entry.state == PENDING:
            heapq.heappush(self._due, entry.arrival_key)
        group = self._blocking.setdefault(entry.resource_group, {})
        heapq.heappush(group.setdefault(entry.priority, []), entry.arrival_key)

    def _take(self, session_id: str) -> QueueEntry:
        self._tried.add(session_id)
        return self._waiting[session_id]

    def _place(self, entry: QueueEntry) -> tuple[int, float, float, str]:
        return place_in_order(entry, self._policy, self._shares)

    def _push_head(self, key: tuple[int, str]) -> None:
        if self._lines[key]:
            heapq.heappush(self._heads, (self._place(self._lines[key][-1]), key))
