# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asks hosts about exposure: their addresses, and what answers probes from outside and from inside of containers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._exposure.model import AGENT, GATEWAY, ProbeBatch, ProbedHost, ProbeReply, TargetsReply
from ...module_utils._model.addressing import is_address
from ...module_utils._model.plain_data import DataError, to_plain
from ...module_utils._module import CAPACITY_OPTIONS, CONNECTION_OPTIONS, SEPARATION_OPTIONS
from ..agent_calls import Answer, Asks, Failure
from ..agent_program import HostKind
from ..host_link import Template
from ..host_request import coerce_variables
from .answers import Answers, Shown, read_answer
from .inside import HostVars, InsidePlan, InsideResults, collect_inside_results
from .report import ProbeResult

OUTSIDER = HostKind("", {})
"""A host that has no part in the cluster."""

# Timeout of each phase in seconds. A probe takes one minute, or several if the limit of open files is low, or if
# another run probes from the same host.
SECONDS = {"targets": 60, "probe": 1800, "inside": 180}

# The settings of hosts, by their kind: variables that begin with it. Those of the program are not among them.
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    AGENT: {
        "underlay_address": CAPACITY_OPTIONS["underlay_address"],
        "management_networks": SEPARATION_OPTIONS["management_networks"],
        "compute_networks": SEPARATION_OPTIONS["compute_networks"],
        "wireguard_port": {"type": "int", "default": 51820},
    },
    GATEWAY: {"https_port": {"type": "int", "default": 443}},
}
_STATE = {"state_path": CONNECTION_OPTIONS["state_path"]}

_INVENTORY = ("ansible_host", "agent_underlay_address")
"""The variables with addresses of a host."""


@dataclasses.dataclass(frozen=True)
class Probing:
    """What asks agents, gateways and probe hosts; ``shown`` are those that ``--limit`` does not hide."""

    agents: Asks
    gateways: Asks
    outsiders: Asks
    shown: Shown

    def read_targets(self, agents: Sequence[str], gateways: Sequence[str], hostvars: HostVars) -> list[ProbedHost]:
        """Return the hosts to probe, with the addresses that they have: those of the inventory if one cannot say."""
        only_agents = [name for name in dict.fromkeys(agents) if name not in gateways]
        answers = {
            **self._ask_targets(self.agents, AGENT, only_agents),
            **self._ask_targets(self.gateways, GATEWAY, gateways),
        }
        return [
            *(_probed_host(name, AGENT, answers.get(name), hostvars[name]) for name in agents),
            *(_probed_host(name, GATEWAY, answers.get(name), hostvars[name]) for name in gateways),
        ]

    def probe(self, probe_hosts: Sequence[str], batches: Sequence[ProbeBatch], rate: int) -> list[ProbeResult]:
        """Return the result of each batch on each probe host; one that cannot be reached is not asked again."""
        gone: dict[str, Answer] = {}
        results: list[ProbeResult] = []
        for batch in batches:
            # One call for each batch keeps connections short.
            options = {**to_plain(batch), "rate": rate}
            del options["target"]
            asked = [name for name in self.shown(probe_hosts) if name not in gone]
            step = f"Probe {batch.target}: {', '.join(batch.addresses)}"
            answers = {**gone, **self._ask(self.outsiders, "probe", asked, options, step)}
            gone = {name: each for name, each in answers.items() if isinstance(each, Failure) and each.unreachable}
            results += [_probe_result(name, batch, answers.get(name)) for name in probe_hosts]
        return sorted(results, key=lambda result: probe_hosts.index(result.probe_host))

    def probe_inside(self, plan: InsidePlan, targets: Sequence[ProbedHost]) -> InsideResults:
        """Return what the containers of each agent reach."""
        agents = self.shown([target.name for target in targets if target.kind == AGENT])
        options = {"targets": to_plain(plan.targets)}
        answers = self._ask(self.agents, "inside", agents, options, "Probe management from containers")
        return collect_inside_results(plan, targets, answers)

    def _ask_targets(self, asks: Asks, kind: str, names: Sequence[str]) -> Answers:
        def options_of(_name: str, variables: Mapping[str, Any], template: Template) -> dict[str, Any]:
            settings = coerce_variables(SETTINGS[kind], f"{kind}_", variables, template)
            # On agents, the firewall's state is in the folder of the agent.
            prefix = "agent_" if kind == AGENT else "firewall_"
            state = coerce_variables(_STATE, prefix, variables, template)
            return {**settings, "kind": kind, "firewall_state_path": state["state_path"]}

        return asks.ask("targets", self.shown(names), options_of, SECONDS["targets"], f"Read the addresses of {kind}s")

    def _ask(
        self, asks: Asks, phase: str, names: Sequence[str], options: Mapping[str, Any], step: str
    ) -> dict[str, Answer]:
        return asks.ask(phase, names, lambda *_host: options, SECONDS[phase], step)


def _probed_host(name: str, kind: str, answer: Answer | None, variables: Mapping[str, Any]) -> ProbedHost:
    """Return the addresses to probe of a host; if it is unreachable, those of the inventory."""
    try:
        return ProbedHost(name, kind, **vars(read_answer(TargetsReply, answer)))
    except DataError as error:
        addresses = [str(variables[key]) for key in _INVENTORY if is_address(str(variables.get(key, "")))]
        unread = f"its addresses could not be read: {error}"
        return ProbedHost(name, kind, dict.fromkeys(addresses, kind), unread=unread)


def _probe_result(probe_host: str, batch: ProbeBatch, answer: Answer | None) -> ProbeResult:
    try:
        return ProbeResult(probe_host, batch, **to_plain(read_answer(ProbeReply, answer)))
    except DataError as error:
        return ProbeResult(probe_host, batch, failed=f"the probe failed: {error}")
