# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks that gateways reach a session at an address of the agent that runs main1, and not at that of another host."""

from __future__ import annotations

from ...module_utils._model.plan import SessionPlan
from .cluster_state import ClusterState
from .session_network import UnfitAgentsError


def check_own_address(plan: SessionPlan, cluster: ClusterState) -> None:
    """Raise :class:`UnfitAgentsError` if the published address of a session is not its agent's own.

    It has all agents of which that is so: one of them may report the addresses of many.
    """
    problem = find_foreign_address(plan, cluster)
    if problem:
        raise UnfitAgentsError({plan.kernels[0].agent: problem, **find_foreign_addresses(cluster)})


def find_foreign_address(plan: SessionPlan, cluster: ClusterState) -> str:
    """Return why the published address of a session is not its agent's own, as one phrase; empty if it is.

    An agent reports its own addresses, so the inventory decides; where it has none, no other agent may have reported
    the address. Agents that are known by a host name only, and cannot be read now, are not compared.
    """
    agent = plan.kernels[0].agent
    for address in dict.fromkeys(port.address for port in plan.published):
        other = find_other_owner(agent, address, cluster)
        if other:
            return _describe(agent, address, other)
    return ""


def find_foreign_addresses(cluster: ClusterState) -> dict[str, str]:
    """Return, by name, why agents with facts are not at an address of their own, as :func:`find_foreign_address`."""
    owners: dict[str, list[str]] = {}
    for name, known in [*cluster.addresses.items(), *((facts.name, facts.addresses) for facts in cluster.agents)]:
        for address in known:
            owners.setdefault(address, []).append(name)
    problems = {}
    for facts in cluster.agents:
        address = facts.underlay.host if facts.underlay else ""
        others = [name for name in owners.get(address, ()) if name != facts.name]
        if others and address not in cluster.addresses.get(facts.name, ()):
            problems[facts.name] = _describe(facts.name, address, others[0])
    return problems


def _describe(agent: str, address: str, other: str) -> str:
    return (
        f"agent_underlay_address: {agent} reports the address {address}, which is also one of {other};"
        f" set the address of {agent} in the inventory"
    )


def find_other_owner(agent: str, address: str, cluster: ClusterState) -> str:
    """Return the other agent that has an address which ``agent`` reports as its own; empty if there is none."""
    if address in cluster.addresses.get(agent, ()):
        return ""
    others = [name for name, known in cluster.addresses.items() if name != agent and address in known]
    others += [facts.name for facts in cluster.agents if facts.name != agent and address in facts.addresses]
    return next(iter(others), "")
