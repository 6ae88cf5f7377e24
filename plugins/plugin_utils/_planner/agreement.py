# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compares what agents hold with the record: whatever they say, the record is what is carried out."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...module_utils._model.plain_data import to_plain
from ...module_utils._model.plan import SessionPlan
from .cluster_state import ClusterState

_MAX_VALUE = 200
"""The maximum length of a value in a sentence."""


def describe_disagreements(cluster: ClusterState) -> list[str]:
    """Return a sentence for each agent that says something else of a session than the record."""
    sentences = []
    for facts in cluster.agents:
        for part in (part for part in facts.sessions if part.id in cluster.records):
            record = cluster.records[part.id]
            if facts.name not in record.agents:
                sentences.append(
                    f"{facts.name} says that it has a part of the session {record.name} ({record.id}), which was not"
                    " planned there: it is ignored, and terminate_session removes it."
                )
            elif part.plan_digest != record.digest:
                sentences.append(
                    f"{facts.name} has another plan of the session {record.name} than this control node, which started"
                    f" it: backendai.cluster.verify_session -e session_id={record.id} shows the first difference, and"
                    " repair_session restores it."
                )
    return sentences


def plan_difference(plan: SessionPlan, other: SessionPlan) -> tuple[str, Any, Any] | None:
    """Return the first field in which two plans differ, with its values as plain data; ``None`` if there is none."""
    for field in dataclasses.fields(SessionPlan):
        one, two = getattr(plan, field.name), getattr(other, field.name)
        if one != two:
            return _first_item(field.name, to_plain(one), to_plain(two))
    return None


def _first_item(name: str, one: Any, two: Any) -> tuple[str, Any, Any]:
    """Return the first items in which two lists differ, or members of two mappings; other values as they are."""
    if isinstance(one, list) and isinstance(two, list):
        length = max(len(one), len(two))
        pairs = zip([*one, *[None] * (length - len(one))], [*two, *[None] * (length - len(two))], strict=True)
        index, (before, after) = next((number, pair) for number, pair in enumerate(pairs) if pair[0] != pair[1])
        return _first_item(f"{name}[{index}]", before, after)
    if isinstance(one, dict) and isinstance(two, dict):
        key = next(key for key in sorted({*one, *two}) if (key in one, one.get(key)) != (key in two, two.get(key)))
        return _first_item(f"{name}.{key}", one.get(key), two.get(key))
    return name, one, two


def format_value(value: Any) -> str:
    """Return a value that came from a host for a sentence: one line without control characters, not too long."""
    if value is None:
        return "missing"
    text = ascii(value)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"
