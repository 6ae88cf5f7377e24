# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans the probes from inside of containers, and collects their results from all agents."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils._exposure.model import AGENT, CLOSED, OPEN, InsideReply, InsideTarget, ProbedHost
from ...module_utils._model.addressing import is_ipv6
from ...module_utils._model.errors import as_phrase
from ...module_utils._model.plain_data import DataError, from_plain, to_plain
from ...module_utils._model.session import SSH_PORT
from ...module_utils._model.validation import ValidationError
from ..agent_results import describe_missing_result
from ..inventory_addresses import addresses_of

MAX_TARGETS = 1024
"""How many addresses are probed, at most."""

# The variable of each agent that holds the result of ``isolation_host`` with ``phase: inside``.
_RESULT = "__isolation_inside"

HostVars = Mapping[str, Mapping[str, Any]]


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


def plan_inside_probes(targets: Iterable[ProbedHost], managers: Iterable[str], hostvars: HostVars) -> dict[str, Any]:
    """Return the ``targets`` that no container may reach, and why others are ``unprobed``, as plain data.

    They are the SSH ports of agents and gateways, at all addresses of their own, and of managers. Containers have no
    IPv6.
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
    return {"targets": to_plain(planned[:MAX_TARGETS]), "unprobed": unprobed}


def collect_inside_results(
    planned: Mapping[str, Any], targets: Iterable[ProbedHost], hostvars: HostVars
) -> InsideResults:
    """Return what the containers of each agent reach, from the results of the planned probes."""
    probed = tuple(from_plain(InsideTarget, target, "inside") for target in planned["targets"])
    replies, failed = {}, {}
    for agent in (target.name for target in targets if target.kind == AGENT):
        result = hostvars[agent].get(_RESULT) or {}
        if "probes" not in result:
            failed[agent] = describe_missing_result(result)
            continue
        try:
            replies[agent] = _parse_reply(result, probed)
        except DataError as error:
            failed[agent] = as_phrase(error)
    return InsideResults(probed, replies, failed, tuple(planned["unprobed"]))


def _parse_reply(result: Mapping[str, Any], targets: Iterable[InsideTarget]) -> InsideReply:
    """Return the reply in a task's result. Raises :class:`DataError`, also for answers of anything but targets."""
    damaged = "its reply is damaged"
    fields = {field.name for field in dataclasses.fields(InsideReply)}
    reply = from_plain(InsideReply, {name: result[name] for name in fields & result.keys()}, damaged)
    known = {(target.address, target.port, state) for target in targets for state in (OPEN, CLOSED)}
    for answer in (answer for probe in reply.probes for answer in probe.answers):
        if (answer.address, answer.port, answer.state) not in known:
            raise DataError(f"{damaged}: it is about another address, port or state than asked for")
    return reply
