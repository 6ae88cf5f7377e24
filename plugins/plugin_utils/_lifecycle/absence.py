# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Agents that do not answer: how long, and which sessions end because of that.

An agent is lost after a time that is counted from run to run, so that neither one failed look nor a clock that is set
decides. Nothing is counted while most agents do not answer: then it is this control node that is cut off.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Iterable, Mapping

from ...module_utils._model.state_format import StateFormat
from .._planner.cluster_state import Session
from .._queue.entry import RUNNING, QueueEntry, mark_terminating
from .._report.record import ended_record, session_record

STEP_SECONDS = 120.0
"""How much time one run counts at most: nobody knows whether the agent answered since an earlier one."""


@dataclasses.dataclass(frozen=True)
class Absence:
    """An agent that does not answer ``since`` a time, was last tried at ``tried_at``, and the ``seconds`` counted.

    Times are in seconds since the epoch.
    """

    since: float
    tried_at: float
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Absences:
    """The agents that did not answer the last run, by name."""

    agents: dict[str, Absence] = dataclasses.field(default_factory=dict)

    def after(self, away: Collection[str], answered: Collection[str], started_at: float, now: float) -> Absences:
        """Return the state after a run, in which agents were ``away`` or ``answered``; others were not asked.

        A run that has ``started_at`` a time counts once, however often it is here with what it has found.
        """
        agents = {name: absence for name, absence in self.agents.items() if name not in answered}
        for name in away:
            before = agents.get(name, Absence(now, now))
            counts = before.tried_at < started_at and not is_cut_off(away, answered)
            step = min(max(0.0, now - before.tried_at), STEP_SECONDS) if counts else 0.0
            agents[name] = Absence(before.since, now, before.seconds + step)
        return Absences(agents)

    def lost(self, away: Collection[str], answered: Collection[str], seconds: float) -> list[str]:
        """Return the agents that have been away for ``seconds``; none if this control node is cut off."""
        counted = [] if is_cut_off(away, answered) else [name for name in away if name in self.agents]
        return [name for name in counted if self.agents[name].seconds >= seconds]

    def explain(self, agents: Iterable[str]) -> str:
        """Return since when agents have not answered, and what to do; empty without any."""
        phrases = [f"{name} does not answer{self._since(name)}" for name in agents]
        remedy = "switch it on and connect it; only if it never comes back, end the session with session_force=true"
        return f"{', '.join(phrases)}: {remedy}" if phrases else ""

    def _since(self, name: str) -> str:
        if name not in self.agents:
            return ""
        return f" since {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime(self.agents[name].since))}"


ABSENCES = StateFormat("the absences", Absences)


def is_cut_off(away: Collection[str], answered: Collection[str]) -> bool:
    """Return whether at most half of the agents other than one that is ``away`` have ``answered``."""
    return bool(away) and 2 * len(answered) <= len(away) + len(answered) - 1


def describe_cut_off(away: Collection[str], answered: Collection[str]) -> list[str]:
    """Return a sentence if most agents do not answer."""
    if not is_cut_off(away, answered):
        return []
    names, total = ", ".join(sorted(away)), len(away) + len(answered)
    problem = f"{len(away)} of {total} agents do not answer ({names}), so this control node may be cut off from them"
    return [f"{problem}: no agent counts as lost until most answer; check the network of this host."]


def end_lost(
    entries: Iterable[QueueEntry], sessions: Mapping[str, Session], lost: Collection[str], seconds: int, now: float
) -> list[QueueEntry]:
    """Return the entries of sessions that end because an agent is ``lost`` and their failure policy says so.

    An agent is lost after ``seconds``; ``now`` is in seconds since the epoch.
    """
    ended = []
    for entry in entries:
        plan = entry.plan if entry.state == RUNNING else None
        gone = [agent for agent in plan.agents if agent in lost] if plan else []
        if plan and gone and plan.failure_policy == "terminate":
            reason = f"{', '.join(gone)} did not answer for {seconds} seconds and session_failure_policy is terminate"
            known = sessions.get(entry.id)
            record = session_record(plan, "TERMINATED", known.containers if known else {})
            record = ended_record(record, "TERMINATED", reason, None, entry.enqueued_at, now)
            ended.append(mark_terminating(entry, record, plan.agents, now))
    return ended
