# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans the links of a session on an agent: its bridge and its tunnel."""

from __future__ import annotations

from .._model.plan import SessionPlan
from .._network.bridge import desired_bridge, plan_bridge
from .._network.iproute import LinkOperation, LinkState
from .._network.vxlan import desired_vxlan, plan_vxlan


def plan_links(plan: SessionPlan, agent: str, state: LinkState) -> list[LinkOperation]:
    """Return what must change for the session's bridge and tunnel to match the plan. Needs no engine."""
    bridge, link = desired_bridge(plan), desired_vxlan(plan, agent)
    return [*(plan_bridge(bridge, state) if bridge else []), *(plan_vxlan(link, state) if link else [])]
