# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Renders the report of a verified session: a table of all pairs, and a line for each finding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .record import render_table
from .verification import failed_checks, is_unchecked

# The names of the checks in the table.
SHOWN = {"name": "name", "tcp": "tcp", "frame": "mtu", "ssh": "ssh"}


def render_verification(report: Mapping[str, Any]) -> list[str]:
    """Return the whole report: the table, unreachable agents, drift, failed pairs and mounts."""
    name, error = report["session"]["name"], report["error"]
    return [
        *render_matrix(report["pairs"]),
        *(f"{agent} is unavailable: {reason}." for agent, reason in report["agents"].items()),
        *(_render_change(change) for change in report["drift"]),
        *_render_failures(report["pairs"]),
        *(_render_mount(mount) for mount in report["mounts"]),
        f"Session {name} is {'healthy' if error is None else 'not healthy'}.",
    ]


def render_matrix(pairs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a table: from each row to each column, the failed checks."""
    cells = {(pair["from"], pair["to"]): _render_cell(pair) for pair in pairs}
    names = list(dict.fromkeys(source for source, _target in cells))
    rows = [["from", *names], *([source, *(cells[source, target] for target in names)] for source in names)]
    return render_table(rows)


def _render_cell(pair: Mapping[str, Any]) -> str:
    failed = ",".join(SHOWN[check] for check in failed_checks(pair))
    return failed or ("?" if is_unchecked(pair) else "ok")


def _render_change(change: Mapping[str, Any]) -> str:
    actual, expected = change["actual"] or "missing", change["expected"] or "removed"
    return f"{change['agent']}: {change['subject']}: {actual} -> {expected}"


def _render_failures(pairs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each target and kind of failure, with all sources that it affects."""
    sources_by_failure: dict[tuple[str, str], list[str]] = {}
    for pair in pairs:
        failed = ", ".join(SHOWN[check] for check in failed_checks(pair))
        if failed:
            error = f": {pair['ssh_error']}" if pair["ssh_error"] else ""
            sources_by_failure.setdefault((pair["to"], f"{failed}{error}"), []).append(pair["from"])
    return [f"{', '.join(sources)} -> {target}: {failure}" for (target, failure), sources in sources_by_failure.items()]


def _render_mount(mount: Mapping[str, Any]) -> str:
    method = {
        "marker": "compared by a marker file of main1",
        "names": "main1 could not create a marker file: compared by the names in the top folder",
        None: "user work of main1 cannot read it, or was not checked",
    }[mount["compared"]]
    differing, unknown = ", ".join(mount["differing"]), ", ".join(mount["unknown"])
    notes = [f"differs from main1 in {differing}"] if differing else []
    notes += [f"unknown for {unknown}"] if unknown else []
    notes += ["the marker file could not be removed"] if mount["marker_left"] else []
    return f"mount {mount['target']}: {'; '.join(notes) or 'the same in all containers'} ({method})"
