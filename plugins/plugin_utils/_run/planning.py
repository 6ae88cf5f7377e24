# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the planning of a new session and of those that wait have in common."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

from ...module_utils._model.errors import as_phrase
from ...module_utils._model.session import Mount
from ...module_utils._model.validation import ValidationError
from .._placement.place import Unschedulable
from .._planner.cluster_state import ClusterState
from .._planner.decision import Decision
from .._planner.session_network import PlanningError
from .._planner.user_groups import Membership, owning_groups
from .._queue.entry import QueueEntry, ending_ids
from ..cluster_view import Answers, read_answers, with_addresses, with_inventory, with_reservations
from ..user_groups import Directory, GroupRules, read_groups, with_names
from .site import Site

User = tuple[str, int | None]
"""The user that a session belongs to, and the user's uid, if that is known."""

_Answer = TypeVar("_Answer", Decision, Decision | Unschedulable)


def cluster_of(site: Site, answers: Answers, entries: Iterable[QueueEntry]) -> ClusterState:
    """Return the state of the agents, with the addresses that the inventory gives them if there are gateways."""
    cluster = with_inventory(read_answers(answers, entries), site.agents, site.hosts, answers)
    return with_addresses(cluster, site.agents, site.hosts) if site.request.pools.gateways else cluster


def free_room(cluster: ClusterState, entries: Collection[QueueEntry], own_id: str = "") -> ClusterState:
    """Return the state as it will be once other runs have claimed what they have planned."""
    ended = cluster.with_ended([entry.id for entry in entries if entry.has_ended])
    return with_reservations(ended.without_sessions(ending_ids(entries)), entries, own_id)


def groups_of(site: Site, user: User, mounts: Sequence[Mount], cluster: ClusterState) -> Membership | None:
    """Return the groups of a user as they are now; ``None`` if sessions get none, or keep theirs."""
    rules = GroupRules.from_variable(site.rules.groups)
    name, uid = user
    if rules is None or uid is None:
        return None
    directory = Directory()
    groups = read_groups(name, uid, rules, directory)
    return with_names(groups, owning_groups(mounts, cluster.agents), directory)


def with_groups(
    site: Site, chosen: Iterable[tuple[QueueEntry, Decision]], cluster: ClusterState
) -> tuple[list[tuple[QueueEntry, Decision]], dict[str, str]]:
    """Return decisions with the groups of their users, and why other sessions cannot have theirs, by id."""
    given, refused = [], {}
    for entry, decision in chosen:
        try:
            user = (entry.user, entry.user_uid) if entry.limited else ("", None)
            groups = groups_of(site, user, decision.plan.mounts, cluster)
            given.append((entry, give_groups(decision, entry, groups, cluster)))
        except (ValidationError, PlanningError) as error:
            refused[entry.id] = as_phrase(error)
    return given, refused


def give_groups(decision: _Answer, entry: QueueEntry, groups: Membership | None, cluster: ClusterState) -> _Answer:
    """Return a decision with those of its user's groups that its plan gets. Raises :class:`PlanningError`.

    Those of operators' playbooks get none.
    """
    is_users = groups is not None and entry.limited and (entry.user, entry.user_uid) == (groups.user, groups.uid)
    if groups is None or not is_users or not isinstance(decision, Decision):
        return decision
    return decision.with_groups(groups.of_plan(decision.plan, cluster.facts))
