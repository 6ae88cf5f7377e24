# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The overlay phase: a swarm manager creates the overlay networks of sessions for all agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._docker.client import connect
from .._host.store import Store
from .._model.change import Change, as_diff
from .._model.errors import EXPECTED, sentence
from .._model.plan import SessionPlan
from .._session.overlay import make_overlay


def overlay(options: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Create the missing overlays of ``sessions`` (``plan`` and ``nonce``); return a result for each by id."""
    client, store = connect(options["docker_host"]), Store(options["state_path"])
    changes: list[Change] = []
    results: dict[str, dict[str, Any]] = {}
    for request in options["sessions"]:
        plan = SessionPlan.from_dict(request["plan"])
        results[plan.id] = {}
        try:
            changes += make_overlay(client, store, plan, request["nonce"], check_mode=check_mode)
        except EXPECTED as error:
            results[plan.id]["failed"] = sentence(error)
    return {"changed": bool(changes), "diff": as_diff(changes), "sessions": results}
