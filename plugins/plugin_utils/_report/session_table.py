# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of sessions, for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._model.quantity import format_slots
from .record import render_table

_HOST_SLOTS = ("cpu", "mem", "shmem")


def session_table(sessions: Iterable[tuple[Mapping[str, Any], float]], now: float, *, wide: bool = False) -> list[str]:
    """Return (record, time of the request) of sessions as the lines of a table, newest last.

    Times are in seconds since the epoch. The last column is the reason why a session waits or has ended. ``wide`` adds
    the id, the resource group, the image, and the resources of one container.
    """
    more = ("ID", "GROUP", "IMAGE", "EACH") if wide else ()
    rows = [("NAME", "USER", "MODE", "SIZE", "CPU/GPU", "STATUS", "AGENTS", "AGE", "ENDS", *more, "")]
    for record, since in sorted(sessions, key=lambda session: session[1]):
        agents = ",".join(dict.fromkeys(kernel["agent"] for kernel in record["kernels"])) or "-"
        size = record["cluster_size"]
        details = (record["id"], record["resource_group"], record["image"], _format_each(record)) if wide else ()
        rows.append(
            (
                record["name"] or "-",
                record["user"] or ("-" if record["recorded"] else "(no record)"),
                # One container is on one agent, whatever was requested.
                (record["cluster_mode"] or "-").capitalize() if size != 1 else "-",
                str(size or "-"),
                _format_processors(record),
                # Of one without a record only its parts are known, not how many there should be.
                f"{record['status']}{'' if record['recorded'] else '?'}",
                agents,
                format_duration(now - since),
                format_duration(record["ends_at"] - now) if record["ends_at"] is not None else "-",
                *(str(detail or "-") for detail in details),
                _note(record),
            )
        )
    return render_table(rows)


def _note(record: Mapping[str, Any]) -> str:
    """Return why a session waits, with its position in the queue, or has ended."""
    reason = (record["pending"] or {}).get("reason") or record["reason"] or record["error"] or ""
    return f"#{record['queue_position']}: {reason}" if record["queue_position"] else str(reason)


def _format_processors(record: Mapping[str, Any]) -> str:
    """Return the cores and the accelerators of all containers, such as ``8/2``."""
    if not record["resources"]:
        return "-"
    total = record["resources"]["total"]
    return f"{total.get('cpu', 0)}/{sum(amount for slot, amount in total.items() if slot not in _HOST_SLOTS)}"


def _format_each(record: Mapping[str, Any]) -> str:
    return format_slots(record["resources"]["container"]) if record["resources"] else ""


def format_duration(seconds: float) -> str:
    """Return a duration in its largest unit, as ``kubectl`` does: 45s, 12m, 3h, 9d."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{max(0, int(seconds))}s"
