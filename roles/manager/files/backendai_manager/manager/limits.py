# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a user may have by the policy, what the user has of it, and what is free."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from ..policy import Policy
from ..protocol import Request, Result
from .context import RequestContext
from .queue import CREATING, PENDING, RUNNING, session_of_entry

AGENTS = "agent_list_path"


def limits(context: RequestContext, _request: Request) -> Result:
    """Return the limits of the caller. What is free is not known while the agents cannot be listed."""
    policy = context.policy(context.options())
    with context.slot():
        outcome = context.runs.run("list_agents", reports=[AGENTS])
    report = outcome.reports[AGENTS]
    if not outcome.done:
        context.warn(outcome.reason)
    groups = report["groups"] if outcome.done and isinstance(report, dict) else None
    free = [
        {name: group[name] for name in ("resource_group", "free", "total")}
        for group in groups or ()
        if group["resource_group"] in policy.resource_groups
    ]
    return Result("done", "", {**_allowed(policy), "held": _held(context), "free": None if groups is None else free})


def _allowed(policy: Policy) -> dict[str, Any]:
    """Return the words of the policy; where a folder comes from on agents is the operators'."""
    # In the collection, which is found once the service has started.
    from ansible_collections.backendai.cluster.plugins.plugin_utils._request.known_apps import KNOWN_APPS

    own = ("uid", "gid", "groups", "options", "mounts")
    words = {field.name: getattr(policy, field.name) for field in dataclasses.fields(policy) if field.name not in own}
    folders = [
        {"name": name, "target": folder.target, "read_only": folder.read_only} for name, folder in policy.mounts.items()
    ]
    return {**words, "folders": folders, "known_apps": [*KNOWN_APPS]}


def _held(context: RequestContext) -> dict[str, Any]:
    """Return how many sessions of the caller run, and wait, their containers, and the resources of those that run."""
    states, resources, containers = Counter[str](), Counter[str](), 0
    for entry in context.queue.entries():
        known, state = session_of_entry(entry), entry.get("state")
        if known is None or not known.belongs_to(context.caller) or state not in (PENDING, CREATING, RUNNING):
            continue
        states["waiting" if state == PENDING else "running"] += 1
        containers += entry["record"].get("cluster_size") or 0
        if state != PENDING:
            resources.update((entry["record"].get("resources") or {}).get("total") or {})
    return {
        "running": states["running"],
        "waiting": states["waiting"],
        "containers": containers,
        "resources": dict(resources),
    }
