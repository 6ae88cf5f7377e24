# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks the queue again while time passes: sessions that wait, and owners whose accounts are removed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import RefusedError
from ..options import load_options
from ..paths import Paths
from ..policy import Policy, PolicyError, load_policy
from .identity import Accounts, Caller, find_caller
from .ownership import KnownSession
from .queue import CREATING, PENDING, Queue, session_of_entry
from .request import check_waiting
from .settings import Settings

LIMITED = "limited"
"""The field of an entry that says that a user of the command has made it."""

HELD = "__session_held"
"""The variable that names the sessions that a playbook does not start, and does not let others wait for."""

LIMITS = "__session_limits"
"""The variable with what each user may have."""

GROUPS = "__session_groups"
"""The variable with which groups of their users sessions get."""

DEFAULTS = "__session_defaults"
"""The variable with how it is decided what a request leaves open."""

STARTS_NONE = "__session_starts_none"
"""The variable by which a playbook starts none that wait."""

MISSING_SECONDS, MISSING_RUNS = 900, 3
"""For how long, and at how many runs of the timer, an account or a group is missing before that is no outage."""


@dataclasses.dataclass(frozen=True)
class Disallowed:
    """Why a session that waits may not start now, and whether it is ended: ``never``, or if it is so for some time.

    ``later``: its owner's account or group is missing. It is so, too, while LDAP or sssd does not answer.
    """

    reason: str
    later: bool = False
    never: bool = False


@dataclasses.dataclass(frozen=True)
class Judgement:
    """The sessions of users that may not start now, by id. ``problem``: of the policy; ``valid`` if one counts.

    ``limits`` are those of each user, ``groups`` the rules for groups of users.
    """

    disallowed: Mapping[str, Disallowed]
    limits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    groups: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    problem: str = ""
    valid: bool = True

    @property
    def variables(self) -> dict[str, Any]:
        """The variables of a run that may start what waits."""
        held = {HELD: [*self.disallowed]} if self.disallowed else {}
        groups = {GROUPS: dict(self.groups)} if self.groups else {}
        return {**held, **({LIMITS: dict(self.limits)} if self.limits else {}), **groups}


def judge_queue(paths: Paths, settings: Settings, accounts: Accounts) -> Judgement:
    """Return which of the sessions that wait may not start. Without a valid policy, none of a user may."""
    entries, policy, problem = Queue(settings.queue).entries(), None, ""
    try:
        policy, problem = load_policy(Path(settings.policy), paths.last_good_policy, load_options(paths.specification))
    except PolicyError as error:
        problem = str(error)
    disallowed = find_disallowed(entries, policy, accounts, settings.users_group, settings.operators_group)
    limits = policy.limits if policy else {}
    groups = policy.group_rules(settings.operators_group) if policy else {}
    return Judgement(disallowed, limits, groups, problem, policy is not None)


def find_disallowed(
    entries: Iterable[Mapping[str, Any]],
    policy: Policy | None,
    accounts: Accounts,
    users_group: str,
    operators_group: str,
) -> dict[str, Disallowed]:
    """Return why sessions that wait may not start, by their ids. Those of operators' own runs always may.

    Those whose start has begun are judged as well: if the run that starts one has died, the next one starts it.
    """
    found: dict[str, Disallowed] = {}
    owners: dict[tuple[str | None, int | None], Caller | str] = {}
    for entry in entries:
        spec, known = entry.get("spec"), session_of_entry(entry)
        waits = entry.get("state") in (PENDING, CREATING)
        if not waits or known is None or not isinstance(spec, dict) or not entry.get(LIMITED):
            continue
        if policy is None:
            found[known.id] = Disallowed("there is no valid policy.", never=True)
            continue
        # Once for each owner: accounts may be those of a slow directory.
        if (known.user, known.uid) not in owners:
            owners[known.user, known.uid] = _find_owner(known, accounts, users_group, operators_group)
        owner = owners[known.user, known.uid]
        if isinstance(owner, str):
            found[known.id] = Disallowed(owner, later=True)
        elif reason := check_waiting(spec, policy, owner):
            found[known.id] = Disallowed(reason)
    return found


def _find_owner(known: KnownSession, accounts: Accounts, users_group: str, operators_group: str) -> Caller | str:
    """Return the owner of a session, or why there is none now."""
    if not known.has_owner(accounts):
        return f"the account of its owner, {known.user}, is gone."
    try:
        return find_caller(str(known.uid), accounts, users_group, operators_group)
    except RefusedError as error:
        return str(error)


def find_due(
    disallowed: Mapping[str, Disallowed], seen: Mapping[str, Any], now: float
) -> tuple[dict[str, list[float]], list[str]]:
    """Return since when, and at how many runs, an account or a group is missing, by id; and the sessions that end now.

    ``seen`` is what the last run has returned of the first.
    """
    noted, due = {}, []
    for session_id, found in disallowed.items():
        if found.later:
            since, runs = _since(seen.get(session_id), now)
            noted[session_id] = [since, runs + 1]
            if now - since < MISSING_SECONDS or runs + 1 < MISSING_RUNS:
                continue
        if not found.never:
            due.append(session_id)
    return noted, due


def _since(value: Any, now: float) -> tuple[float, float]:
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, (int, float)) for part in value):
        return min(float(value[0]), now), float(value[1])
    return now, 0.0


def find_orphans(
    live: Sequence[KnownSession], accounts: Accounts, since: Mapping[str, Any], now: float, after: int
) -> tuple[dict[str, float], list[KnownSession]]:
    """Return since when the owners of live sessions are known to be gone, by id, and the sessions that end now.

    They end ``after`` that many seconds; 0 for never. A session that never had a uid has no owner who could be gone.
    """
    gone = [session for session in live if session.uid is not None and not session.has_owner(accounts)]
    first = {session.id: min(_moment(since.get(session.id), now), now) for session in gone}
    return first, [session for session in gone if after and now - first[session.id] >= after]


def _moment(value: Any, now: float) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else now
