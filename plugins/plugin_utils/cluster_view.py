# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of the cluster: what agents have answered, what the inventory says of them, what other runs plan."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleError

from ..module_utils._model.facts import AgentFacts
from ..module_utils._model.plain_data import DataError
from ..module_utils._model.printable import printable
from ..module_utils._module import CAPACITY_OPTIONS
from ._planner.cluster_state import ClusterState, InventoryAgent
from ._planner.route_address import find_foreign_addresses
from ._queue.entry import QueueEntry, recorded_plans, reserved_plans
from .host_request import coerce_variables

INVENTORY_ADDRESSES = ("ansible_host", "agent_underlay_address")
"""The variables of an agent by which the inventory gives it an address."""

Answers = Mapping[str, Mapping[str, Any]]
"""What agents have answered to a survey, by name: one that was not asked has no answer."""

HostVariables = Mapping[str, Mapping[str, Any]]
"""The variables of hosts by name, with their templates rendered."""

_NOT_RESTORED = "{name}: its sessions are not restored after a reboot; run backendai.cluster.provision_agents."


def read_answers(answers: Answers, entries: Iterable[QueueEntry] = ()) -> ClusterState:
    """Return the facts of the agents that have returned some, and the errors of the others.

    The plans of ``entries`` are those of the record. An agent with corrupt facts is unavailable,
    and all others can be used.
    """
    facts: dict[str, AgentFacts] = {}
    unavailable: dict[str, str] = {}
    for name, result in answers.items():
        if result.get("agent"):
            try:
                facts[name] = AgentFacts.from_dict(name, result["agent"])
            except DataError as error:
                unavailable[name] = str(error)
        else:
            unavailable[name] = str(result.get("error") or result.get("msg", "it returned no facts"))
    reasons = {name: " ".join(reason.split()).rstrip(".") for name, reason in unavailable.items()}
    return ClusterState(facts, reasons, recorded_plans(entries))


def attendance_in(answers: Answers) -> tuple[list[str], list[str]]:
    """Return the agents that could not be reached, and those that answered."""
    away = [name for name, result in answers.items() if result.get("unreachable")]
    return away, [name for name in answers if name not in frozenset(away)]


def with_addresses(cluster: ClusterState, agents: Iterable[str], hosts: HostVariables) -> ClusterState:
    """Return the state with the addresses that the inventory gives agents; only routes need them."""
    return dataclasses.replace(cluster, addresses={name: read_addresses(name, hosts[name]) for name in agents})


def with_inventory(
    cluster: ClusterState, agents: Iterable[str], hosts: HostVariables, answers: Answers
) -> ClusterState:
    """Return the state with what the inventory says of agents that cannot be used."""
    known = {name: read_agent(hosts[name]) for name in agents if name in cluster.unavailable}
    return dataclasses.replace(cluster, inventory=known, unreachable=attendance_in(answers)[0])


def with_reservations(cluster: ClusterState, entries: Iterable[QueueEntry], own_id: str = "") -> ClusterState:
    """Return the state as it will be after other active runs have claimed what they have planned."""
    for plan in reserved_plans(entries, cluster.sessions, own_id):
        cluster = cluster.with_plan(plan)
    return cluster


def warnings_about(cluster: ClusterState) -> list[str]:
    """Return a warning for each unavailable agent, and the warnings in the facts of the others and about them.

    Addresses are compared if those of the inventory are known.
    """
    messages = [f"{name} is left out: {reason}." for name, reason in cluster.unavailable.items()]
    messages += [_NOT_RESTORED.format(name=name) for name, facts in cluster.facts.items() if not facts.program]
    messages += [
        f"{name}: {text}" for name, facts in cluster.facts.items() for text in (*facts.obstacles, *facts.warnings)
    ]
    messages += [f"{problem}." for problem in (find_foreign_addresses(cluster) if cluster.addresses else {}).values()]
    return [printable(message) for message in messages]


def read_agent(variables: Mapping[str, Any]) -> InventoryAgent:
    """Return what the inventory says of an agent; nothing if a variable depends on facts that were not gathered."""
    options = {name: CAPACITY_OPTIONS[name] for name in InventoryAgent._fields}
    try:
        values = coerce_variables(options, "agent_", variables, lambda value: value)
    except (AnsibleError, TypeError):
        return InventoryAgent()
    return InventoryAgent(values["resource_group"], frozenset(values["labels"]))


def read_addresses(name: str, variables: Mapping[str, Any]) -> list[str]:
    """Return the addresses that the inventory gives a host; host names are not resolved."""
    addresses = []
    for variable in INVENTORY_ADDRESSES:
        # A variable may depend on facts that were not gathered.
        with contextlib.suppress(ValueError, AnsibleError):
            addresses.append(str(ipaddress.ip_address(str(variables.get(variable) or name))))
    return addresses
