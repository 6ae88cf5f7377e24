# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Chooses which groups of a user the containers of a plan get: an engine gives a process a limited number."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from ...module_utils._model.facts import AgentFacts
from ...module_utils._model.mounts import Source
from ...module_utils._model.plan import SessionPlan
from ...module_utils._model.session import MAX_GROUPS, Mount, UserGroup
from .session_network import PlanningError


@dataclasses.dataclass(frozen=True)
class Membership:
    """The ``numbers`` of the groups that a user may have, in their order, and the ``names`` of some of them."""

    user: str
    uid: int
    numbers: tuple[int, ...]
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)

    def of_plan(self, plan: SessionPlan, facts: Mapping[str, AgentFacts]) -> tuple[UserGroup, ...]:
        """Return the groups of a plan: all of the user, or of too many those that own a folder that it mounts.

        Only agents of the plan say who owns it. Raises :class:`PlanningError` if these are too many as well.
        """
        chosen = [number for number in self.numbers if number != plan.gid]
        if len(chosen) > MAX_GROUPS:
            owners = owning_groups(plan.mounts, (facts[name] for name in plan.agents if name in facts))
            chosen = [number for number in chosen if number in owners]
        if len(chosen) > MAX_GROUPS:
            raise PlanningError(
                f"{self.user} is in {len(chosen)} groups that own a folder of the session, and a container has at most"
                f" {MAX_GROUPS}: ask an operator to name those that count in the policy, groups: [names]"
            )
        return tuple(UserGroup(number, self.names.get(number, "")) for number in chosen)


def owning_groups(mounts: Sequence[Mount], agents: Iterable[AgentFacts]) -> frozenset[int]:
    """Return the numbers of the groups that own a mounted folder, as agents say."""
    words = [Source.of(mount).word for mount in mounts]
    return frozenset(agent.path_groups[word] for agent in agents for word in words if word in agent.path_groups)
