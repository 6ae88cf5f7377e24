# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decides on sessions of a queue, one after the other; equal requests share a refusal."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Set
from typing import Any

from ...module_utils._model.errors import as_phrase
from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.plain_data import to_plain
from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.validation import ValidationError
from .._placement.place import Unschedulable
from .._planner.cluster_state import ClusterState
from .._planner.decision import Decision, decide, is_feasible
from .._planner.outlook import look_ahead
from .._planner.session_network import PlanningError
from .._request.run_options import NetworkPools
from .entry import PENDING, QueueEntry

# How many decisions of a pass name the sessions that would have to end: their search costs more than all the rest.
NAMED_BLOCKERS = 20


class Answers:
    """Decides on one session after the other, each with the capacity that the earlier ones leave.

    ``cluster`` includes what has started in this pass.
    """

    def __init__(self, cluster: ClusterState, pools: NetworkPools, now: float) -> None:
        self.cluster, self._pools, self._now = cluster, pools, now
        # What starts makes no difference to what agents could hold without it.
        self._before = cluster
        # By the keys of requests.
        self._refused: dict[str, Unschedulable] = {}
        self._feasible: dict[str, bool] = {}
        # The ids of sessions that do not block others, which nothing in this pass changes.
        self._harmless: set[str] = set()
        self._computed = 0

    def decide(self, entry: QueueEntry) -> Decision | Unschedulable:
        """Return the decision on an entry; what can never be met stays PENDING as well, with the problem as reason."""
        waits = wait_for_agents(entry, self.cluster)
        if waits is not None:
            return waits
        namesake = self.cluster.is_taken(entry.name)
        if not namesake and entry.request_key in self._refused:
            return self._refused[entry.request_key]
        try:
            # Again: whoever writes to the queue is not the one that starts it.
            entry.check_request()
        except ValidationError as error:
            # Others with the same key may be valid.
            return Unschedulable(as_phrase(error), {})
        answer = self._compute(entry)
        if isinstance(answer, Decision):
            return answer.with_uid(entry.user_uid)
        if not namesake:
            self._refused[entry.request_key] = answer
        return answer

    def _compute(self, entry: QueueEntry) -> Decision | Unschedulable:
        self._computed += 1
        names = self._computed <= NAMED_BLOCKERS
        try:
            answer = decide(
                entry.request, self.cluster, self._pools, entry.id, entry.user, self._now, name_blockers=names
            )
            if isinstance(answer, Unschedulable) and names:
                return look_ahead(answer, entry.request, self.cluster, self._pools, entry.id, self._now)
            return answer
        except (ValidationError, PlanningError) as error:
            return Unschedulable(as_phrase(error), {})

    def start(self, plan: SessionPlan) -> None:
        """Take the room of a new plan."""
        self.cluster = self.cluster.with_plan(plan)
        self._refused.clear()

    def blocks(self, entry: QueueEntry) -> bool:
        """Return whether others wait behind a due session: agents hold no claim of it, and it could start some time.

        A session that waits for an agent to return does not need the room that others would leave it.
        """
        if not self.may_block(entry):
            return False
        held = entry.id in self.cluster.sessions or wait_for_agents(entry, self.cluster)
        if not held and (entry.spec is None or self.is_feasible(entry)):
            return True
        self._harmless.add(entry.id)
        return False

    def may_block(self, entry: QueueEntry) -> bool:
        """Return whether others wait behind a due session as far as :meth:`blocks` was asked, which takes longer."""
        return entry.id not in self._harmless

    def is_feasible(self, entry: QueueEntry) -> bool:
        """Return whether the placement would place a session if all others ended."""
        if self._before.is_taken(entry.name):
            return self._judge(entry)
        if entry.request_key not in self._feasible:
            self._feasible[entry.request_key] = self._judge(entry)
        return self._feasible[entry.request_key]

    def _judge(self, entry: QueueEntry) -> bool:
        try:
            entry.check_request()
            return is_feasible(entry.request, self._before, self._pools, entry.id)
        except (ValidationError, PlanningError):
            return False


def wait_for_agents(entry: QueueEntry, cluster: ClusterState) -> Unschedulable | None:
    """Return why a session must not start elsewhere: agents of its last start cannot say whether its command runs.

    ``None`` if all of them can, if it has no command, which must not run twice, or if it was never started.
    """
    plan = entry.plan
    away = [agent for agent in plan.agents if agent not in cluster.facts] if plan and plan.command else []
    if not away:
        return None
    return Unschedulable(
        f"{', '.join(away)} may have begun its command, and cannot be used ({cluster.explain_unavailable(away)}): make"
        " it available again, or end the session with terminate_session and create it again",
        {},
    )


def digest_of_inputs(entries: Collection[QueueEntry], cluster: ClusterState, pools: NetworkPools, rules: Any) -> str:
    """Return a digest of all that the outcome of a pass depends on; ``rules`` are its options, as plain data.

    A pass that starts nothing would start nothing again while this is the same.
    """
    inventory = [
        (agent.description, agent.known.resource_group, sorted(agent.known.labels or ())) for agent in cluster.away
    ]
    ports = {
        *range(pools.first_host_port, pools.last_host_port + 1),
        *range(pools.first_published_port, pools.last_published_port + 1),
        *(port for entry in entries if entry.state == PENDING for port in entry.host_ports),
    }
    inputs = [
        rules,
        [_facts(agent, ports, pools.vxlan_port) for agent in cluster.agents],
        [dict(cluster.unavailable), sorted(cluster.unreachable), inventory],
        [[name, sorted(addresses)] for name, addresses in cluster.addresses.items()],
        [_outline(entry) for entry in entries],
    ]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def _facts(agent: AgentFacts, ports: Set[int], vxlan_port: int) -> dict[str, Any]:
    """Return the facts without what changes all the time, and decides nothing: sockets on other ports are among it."""
    sessions = [[part.id, part.name, part.expired] for part in agent.sessions]
    tcp, udp = agent.tcp_ports & ports, {vxlan_port: agent.udp_ports.get(vxlan_port, "")}
    lasting = dataclasses.replace(agent, sessions=(), warnings=(), image_disk=None, tcp_ports=tcp, udp_ports=udp)
    return {**to_plain(lasting), "sessions": sessions}


def _outline(entry: QueueEntry) -> list[Any]:
    """Return what a pass needs of an entry: without its record, which says why it waits."""
    fields = ("id", "name", "state", "user", "user_uid", "resource_group", "priority", "enqueued_at", "updated_at")
    known = [getattr(entry, name) for name in (*fields, "has_started", "limited")]
    return [*known, entry.request_key if entry.state == PENDING else ""]
