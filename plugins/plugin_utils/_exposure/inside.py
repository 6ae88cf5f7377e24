# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans the probes from inside of containers, and collects their results from all agents."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...module_utils._exposure.model import AGENT, CLOSED, OPEN, InsideReply, InsideTarget, ProbedHost
from ...module_utils._model.addressing import is_ipv6
from ...module_utils._model.errors import as_phrase
from ...module_utils._model.plain_data import DataError
from ...module_utils._model.session import SSH_PORT
from ...module_utils._model.validation import ValidationError
from ..agent_calls import Answer
from ..inventory_addresses import addresses_of
from .answers import Answers, read_answer

MAX_TARGETS = 1024
"""How many addresses are probed, at most."""

HostVars = Mapping[str, Mapping[str, Any]]


class InsidePlan(NamedTuple):
    """The ``targets`` that no container may reach, and the reasons why others are ``unprobed``."""

    targets: tuple[InsideTarget, ...] = ()
    unprobed: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class InsideResults:
    """What containers reach: the probed ``targets``, and the reply of each agent.

    ``failed`` are the reasons of agents without a reply; ``unprobed`` are those of targets that could not be probed.
    """

    targets: tuple[InsideTarget, ...] = ()
    replies: Mapping[str, InsideReply] = dataclasses.field(default_factory=dict)
    failed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unprobed: tuple[str, ...] = ()

    @property
    def gaps(self) -> list[str]:
        """What was not probed, one phrase each."""
        gaps = [*self.unprobed, *(f"{agent}: {reason}" for agent, reason in self.failed.items())]
        for agent, reply in self.replies.items():
            gaps += [f"{probe.container} of {probe.session}: {probe.failed}" for probe in reply.probes if probe.failed]
            gaps += [f"{agent} has {reply.skipped} more sessions than are probed from"] if reply.skipped else []
        return gaps


def plan_inside_probes(targets: Iterable[ProbedHost], managers: Iterable[str], hostvars: HostVars) -> InsidePlan:
    """Return what no container may reach.

    The targets are the SSH ports of agents and gateways, at all addresses of their own, and of managers. Containers
    have no IPv6.
    """
    own = {
        target.name: [address for address, owner in target.addresses.items() if owner == target.kind]
        for target in targets
    }
    unprobed = []
    for name in managers:
        try:
            found = addresses_of(hostvars, [name])
        except ValidationError as error:
            unprobed.append(as_phrase(error))
            continue
        own[name] = [*own.get(name, []), *found]
        unprobed += [] if own[name] else [f"no address of {name} is known"]
    planned = [
        InsideTarget(name, address, int(hostvars[name].get("ansible_port") or SSH_PORT))
        for name, addresses in own.items()
        for address in dict.fromkeys(addresses)
        if not is_ipv6(address)
    ]
    beyond = len(planned) - MAX_TARGETS
    unprobed += [f"{beyond} addresses beyond the first {MAX_TARGETS}"] if beyond > 0 else []
    return InsidePlan(tuple(planned[:MAX_TARGETS]), tuple(unprobed))


def collect_inside_results(plan: InsidePlan, targets: Iterable[ProbedHost], answers: Answers) -> InsideResults:
    """Return what the containers of each agent reach, from what the agents answer."""
    replies, failed = {}, {}
    for agent in (target.name for target in targets if target.kind == AGENT):
        try:
            replies[agent] = _read_reply(answers.get(agent), plan.targets)
        except DataError as error:
            failed[agent] = as_phrase(error)
    return InsideResults(plan.targets, replies, failed, plan.unprobed)


def _read_reply(answer: Answer | None, targets: Iterable[InsideTarget]) -> InsideReply:
    """Return the reply of an agent. Raises :class:`DataError`, also for answers of anything but targets."""
    reply = read_answer(InsideReply, answer)
    known = {(target.address, target.port, state) for target in targets for state in (OPEN, CLOSED)}
    for found in (found for probe in reply.probes for found in probe.answers):
        if (found.address, found.port, found.state) not in known:
            raise DataError("its reply is damaged: it is about another address, port or state than asked for")
    return reply
