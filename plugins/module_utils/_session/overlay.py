# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Creates the overlay of a session, on the agent that manages the swarm, before any agent needs it."""

from __future__ import annotations

from .._docker import overlay
from .._docker.sdk import docker
from .._host.local_session import LocalSession
from .._host.store import Store
from .._model.change import Change
from .._model.plan import SessionPlan
from .claim_guard import require_claim


def overlay_drift(client: docker.APIClient, session: LocalSession) -> list[Change]:
    """Return how a session's overlay differs from its plan; empty on agents that do not manage it."""
    desired = overlay.desired_overlay(session.plan)
    if desired is None or session.plan.network is None or session.plan.network.swarm_manager != session.agent:
        return []
    change = overlay.plan_overlay(client, desired)
    return [change] if change else []


def make_overlay(
    client: docker.APIClient, store: Store, plan: SessionPlan, nonce: str, *, check_mode: bool
) -> list[Change]:
    """Create the overlay of a session that this run has claimed, if missing, and return what changed.

    With ``check_mode`` the claim may be missing. Raises :class:`ClaimLostError`, and :class:`OverlayInUseError` when an
    overlay with other settings is in use.
    """
    desired = overlay.desired_overlay(plan)
    with store.session_lock(plan.id):
        if not check_mode:
            require_claim(store, plan.id, nonce)
        change = overlay.plan_overlay(client, desired) if desired else None
        if desired is None or change is None:
            return []
        if not check_mode:
            overlay.remove_overlays(client, plan.id)
            overlay.create_overlay(client, desired)
        return [change]
