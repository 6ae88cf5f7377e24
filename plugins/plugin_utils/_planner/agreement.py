# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compares what agents say of a session: what one of them says must not make another one run anything.

The plan of a session that this control node started is in its own record. Of any other session it knows only what
agents have stored, and any of them may have been taken over. So such a session is acted upon only as far as all agents
that the plan names hold the same plan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...module_utils._model.plain_data import to_plain
from ...module_utils._model.plan import SessionPlan
from .cluster_state import ClusterState, Parts, plan_of

_MAX_VALUE = 200
"""The maximum length of a value in a sentence."""


def find_disagreement(parts: Parts) -> str:
    """Return which agent says what of a session, as one phrase; empty if those that hold a part say the same.

    An agent that is not in the plan that it holds disagrees with itself.
    """
    (first, part), *others = parts.items()
    for agent, other in others:
        if other.plan != part.plan:
            return describe_difference({first: part.plan, agent: other.plan})
    planned = part.plan.agents
    outsiders = sorted({*parts} - {*planned})
    return f"{outsiders[0]} says that it has a part of it, of a plan for {', '.join(planned)}" if outsiders else ""


def find_extension(parts: Parts, cluster: ClusterState) -> str:
    """Return why agents' words are not enough to repair a session, as one phrase; empty if they are.

    They are enough if all agents of the plan hold the same plan, so that no agent gets anything new.
    """
    disagreement = find_disagreement(parts)
    if disagreement:
        return disagreement
    (first, part), *_others = parts.items()
    lacking = [agent for agent in part.plan.agents if agent in cluster.facts and agent not in parts]
    return f"{first} says that {lacking[0]} has a part of it, and {lacking[0]} says that it has none" if lacking else ""


def describe_strangers(cluster: ClusterState) -> list[str]:
    """Return a sentence for each agent that says something else of a session than the record, or than other agents."""
    sentences = []
    for facts in cluster.agents:
        for plan in (part.plan for part in facts.sessions if part.plan.id in cluster.records):
            record = cluster.records[plan.id]
            if facts.name not in record.agents:
                sentences.append(
                    f"{facts.name} says that it has a part of the session {record.name} ({plan.id}), which was not"
                    " planned there: it is ignored, and terminate_session removes it."
                )
            elif plan != record:
                sentences.append(
                    f"{facts.name} has another plan of the session {record.name} than this control node, which started"
                    f" it: {describe_difference({'this control node': record, facts.name: plan})};"
                    f" backendai.cluster.repair_session -e session_id={plan.id} restores it."
                )
    for session_id, parts in cluster.sessions.items():
        disagreement = find_disagreement(parts) if session_id not in cluster.records else ""
        if disagreement:
            sentences.append(
                f"the agents of the session {plan_of(parts).name} ({session_id}) disagree, so it is neither repaired"
                f" nor ended when it fails: {disagreement}."
            )
    return sentences


def plan_difference(plan: SessionPlan, other: SessionPlan) -> tuple[str, Any, Any] | None:
    """Return the first field in which two plans differ, with its values as plain data; ``None`` if there is none."""
    for field in dataclasses.fields(SessionPlan):
        one, two = getattr(plan, field.name), getattr(other, field.name)
        if one != two:
            return _first_item(field.name, to_plain(one), to_plain(two))
    return None


def describe_difference(plans: Mapping[str, SessionPlan]) -> str:
    """Return the first difference of two plans as a phrase; the keys say who has them."""
    (first, plan), (second, other) = plans.items()
    field, one, two = plan_difference(plan, other) or ("plan", None, None)
    return f"its {field} is {format_value(one)} on {first} and {format_value(two)} on {second}"


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
