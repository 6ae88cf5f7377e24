# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cores and the memory that go with GPUs: what is left for each where an agent is shared by its GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.validation import ValidationError
from .._request.containers import MIN_MEMORY
from .._request.defaults import Defaults, gpus_of
from .._request.roles import Role
from .._request.spec import SessionSpec
from .cluster_state import ClusterState
from .eligibility import eligible_agents
from .session_network import PlanningError

_GIB, _MIB = 1 << 30, 1 << 20


def amounts_by_gpus(spec: SessionSpec, cluster: ClusterState, defaults: Defaults) -> Callable[[Role], dict[str, int]]:
    """Return the function that says how much of ``cpu`` and ``mem`` the GPUs of a role's container bring with them.

    That is what the policy says, else the smallest share of the agents of the group that could hold the session if
    they were empty, in service or not, so that each holds as many containers as its GPUs allow. It says nothing of a
    role without GPUs, nor if no agent has such GPUs.
    """
    try:
        agents = eligible_agents(spec, cluster.agents, cluster.unavailable, cluster.away, in_service=False)
    except (ValidationError, PlanningError):
        # The placement says what is wrong.
        agents = []
    total: Counter[str] = Counter()
    for role in spec.effective_roles:
        total.update({slot: many * role.replicas for slot, many in gpus_of(role.resources).items()})

    def amounts(role: Role) -> dict[str, int]:
        wanted, shmem = gpus_of(role.resources), role.resources.get("shmem", 0)
        if not wanted:
            return {}
        together = total if spec.cluster_mode == "single-node" else wanted
        # Who waits for larger agents has what the GPUs of those have that there are.
        needs = (together, wanted, dict.fromkeys(wanted, 1))
        holding = next(filter(None, ([agent for agent in agents if _holds(agent, need)] for need in needs)), [])
        # Not what a request for some kind of GPUs leaves of an agent, but all of it.
        gpus = sum(wanted.values())
        shares = [_share(cluster.facts[agent.name], gpus) for agent in holding]
        found = {slot: min(share[slot] for share in shares) for slot in ("cpu", "mem")} if shares else {}
        found |= {slot: gpus * amount for slot, amount in defaults.per_gpu.items()}
        return {**found, "mem": max(found["mem"], shmem)} if "mem" in found else found

    return amounts


def _holds(agent: AgentFacts, gpus: Mapping[str, int]) -> bool:
    return all(agent.capacity.get(slot, 0) >= many for slot, many in gpus.items())


def _share(agent: AgentFacts, gpus: int) -> dict[str, int]:
    """Return what so many of an agent's GPUs have of it, or all: memory in whole GiB, or else in MiB."""
    there = sum(gpus_of(agent.capacity).values())
    cpu, mem = (min(gpus, there) * agent.capacity.get(slot, 0) // there for slot in ("cpu", "mem"))
    unit = _GIB if mem >= _GIB else _MIB
    return {"cpu": max(1, min(cpu, agent.online_cpu_count)), "mem": max(MIN_MEMORY, mem // unit * unit)}
