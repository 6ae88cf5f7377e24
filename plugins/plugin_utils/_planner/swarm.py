# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which agents are nodes of one Docker Swarm, who of them manages it, and what keeps a session from using it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ansible_collections.backendai.cluster.plugins.module_utils._model.facts import AgentFacts

_ASKED = "session_network_driver: swarm was asked for"


def managers(agents: Iterable[AgentFacts]) -> dict[str, str]:
    """Return, for each agent that is a ready node of a swarm, the agent that manages it: the first one by its name.

    Agents with the same manager are in the same swarm. A swarm that none of the agents manages does not count.
    """
    listed = sorted(agents, key=lambda agent: agent.name)
    found: dict[str, str] = {}
    for manager in (one for one in listed if one.swarm):
        for agent in listed:
            if agent.swarm and manager.swarm and agent.swarm.node in manager.swarm.nodes:
                found.setdefault(agent.name, manager.name)
    return found


def why_none(agents: Sequence[AgentFacts]) -> str:
    """Return one sentence for why none of the agents, none of which has a manager, can use a swarm."""
    outside = [agent.name for agent in agents if agent.swarm is None]
    inside = ", ".join(agent.name for agent in agents if agent.swarm)
    reasons = [f"{', '.join(outside)} {'are' if len(outside) > 1 else 'is'} in no swarm"] if outside else []
    reasons += [f"no agent that can be used manages the swarm of {inside}"] if inside else []
    return f"{_ASKED}, and {' and '.join(reasons)}; make them nodes of one swarm, or choose vxlan"


def obstacle(chosen: Iterable[AgentFacts], manager: AgentFacts) -> str:
    """Return one sentence for what keeps an overlay of the manager's swarm from joining the agents; else nothing."""
    port = manager.swarm.port if manager.swarm else 0
    for agent in chosen:
        if port in agent.tunnel_ports:
            return (
                f"{_ASKED}, its UDP port is {port}, and sessions with a VXLAN at that port run on {agent.name}: end"
                " them first, or choose vxlan"
            )
        if agent.underlay and agent.underlay.public_key:
            return (
                f"{_ASKED}, and {agent.name} has agent_underlay_encryption, which an overlay does not use: choose vxlan"
            )
    return ""
