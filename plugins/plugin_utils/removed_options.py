# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options and values that the collection had once, from the table of the role ``session``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.module_utils.common.yaml import yaml_load

from .host_program import COLLECTION

_TABLE = yaml_load((COLLECTION / "roles" / "session" / "vars" / "removed.yml").read_text())

#: What to use instead, by the name of the variable.
REMOVED_OPTIONS: Mapping[str, str] = _TABLE["__session_removed_options"]

#: The same by the name of the variable and the value.
REMOVED_VALUES: Mapping[str, Mapping[str, str]] = _TABLE["__session_removed_values"]


def describe_removed_options(names: Iterable[str]) -> list[str]:
    """Return a sentence for each option of these names that was removed, with what to use instead."""
    return [f"{name} was removed: {REMOVED_OPTIONS[name]}." for name in sorted({*names} & REMOVED_OPTIONS.keys())]


def describe_removed_value(option: str, value: Any) -> str:
    """Return that a value of an option was removed, and what to use instead, as a phrase; empty if it was not."""
    instead = REMOVED_VALUES.get(option, {}).get(value) if isinstance(value, str) else None
    return f"was removed: {instead}" if instead else ""


def refuse_removed_options(reply: Mapping[str, Any], variables: Iterable[str]) -> Mapping[str, Any]:
    """Return the reply to a survey; an agent with an option that was removed gets no new sessions, and says why.

    What it has is listed, read and ended as ever.
    """
    agent = reply.get("agent") or {}
    removed = describe_removed_options(name for name in variables if name.startswith("agent_"))
    # What is damaged is said by who reads it.
    if not removed or not isinstance(agent.get("obstacles"), list):
        return reply
    return {**reply, "agent": {**agent, "schedulable": False, "obstacles": [*agent["obstacles"], *removed]}}
