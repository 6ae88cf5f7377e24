# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judges a cluster by what Backend.AI's security guide requires of its network, from the results of the probes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._exposure.model import AGENT, CONTAINER, GATEWAY, ProbedHost
from ...module_utils._firewall.audit import audit_public_addresses
from ...module_utils._firewall.policy import COMPUTE, ENFORCE, MANAGEMENT, REPORT
from ...module_utils._model.reported_traffic import OFF
from .inside import InsideResults
from .policy_folders import FolderResults

_SHOWN = 3

Entries = Sequence[Mapping[str, Any]]
"""Findings, or inconclusive checks, as in the report."""

Verdict = tuple[bool | None, str | None]
"""Whether a requirement is met, ``None`` if that was not checked, and why it is not, or was not."""

_MET: Verdict = (True, None)

# What the guide requires besides, and no probe can tell.
_NOT_PROBED = {
    "users' connections are encrypted and limited in rate": "gateways offer HTTPS and SSH only",
    "managers are reached from trusted networks only": "managers are hosts of your own, which are not probed",
}


def build_checklist(
    targets: Sequence[ProbedHost],
    outside: Entries,
    within: Entries,
    inconclusive: Entries,
    inside: InsideResults,
    folders: FolderResults,
) -> list[dict[str, Any]]:
    """Return each requirement with its verdict, as plain data.

    ``outside`` are the findings of probe hosts, ``within`` those of containers, ``folders`` those about folders of
    policies.
    """
    agents = [target for target in targets if target.kind == AGENT]
    gateways = [target for target in targets if target.kind == GATEWAY]
    owners = {(target.name, address): owner for target in agents for address, owner in target.addresses.items()}
    of_containers = [entry for entry in outside if owners.get(_place(entry)) == CONTAINER]
    of_agents = [entry for entry in outside if _place(entry) in owners and entry not in of_containers]
    of_gateways = [entry for entry in outside if _place(entry) not in owners]
    with_containers = [target for target in agents if CONTAINER in target.addresses.values() or target.unread]
    verdicts = {
        "users reach no agent": _judge_answers(of_agents, agents, inconclusive, "there are no agents"),
        "users reach no container": _judge_answers(of_containers, with_containers, inconclusive, "no container runs"),
        "users reach only the offered ports of gateways": _judge_answers(
            of_gateways, gateways, inconclusive, "there are no gateways"
        ),
        "every firewall drops what is not allowed": _judge_firewalls(targets),
        "agents have no public address": _judge_public_addresses(agents),
        "management and compute are networks of their own": _judge_networks(agents),
        "SSH is closed on compute, tunnels are closed on management": _judge_rules(agents),
        "containers reach no management address": _judge_inside(within, inside),
        "folders of the policy are where root has put them": _judge_folders(folders.problems, folders),
        "shared folders of the policy are mounted nosuid,nodev": _judge_folders(folders.unprotected, folders),
        **{requirement: (None, reason) for requirement, reason in _NOT_PROBED.items()},
    }
    return [{"requirement": requirement, "ok": ok, "reason": reason} for requirement, (ok, reason) in verdicts.items()]


def _place(entry: Mapping[str, Any]) -> tuple[str, str]:
    return entry["target"], entry["address"]


def _judge_answers(findings: Entries, hosts: Sequence[ProbedHost], inconclusive: Entries, nothing: str) -> Verdict:
    if findings:
        return False, _first(
            f"{entry['target']} answers {entry['probe_host']} at {entry['address']}" for entry in findings
        )
    names = {host.name for host in hosts}
    doubts = [f"{entry['target']}: {entry['reason']}" for entry in inconclusive if entry["target"] in names]
    if doubts or not hosts:
        return None, _first(doubts) or nothing
    return _MET


def _judge_firewalls(targets: Iterable[ProbedHost]) -> Verdict:
    by_mode: dict[str, list[str]] = {}
    for target in targets:
        by_mode.setdefault(target.firewall_mode, []).append(target.name)
    if REPORT in by_mode:
        return False, f"the firewall of {', '.join(by_mode[REPORT])} is in report mode and drops nothing"
    unknown = [name for mode, names in by_mode.items() if mode not in (ENFORCE, OFF) for name in names]
    without = f"{', '.join(by_mode.get(OFF, []))} has no firewall of this collection"
    doubts = [*([without] if OFF in by_mode else []), *(f"the firewall of {name} is not known" for name in unknown)]
    return (None, _first(doubts)) if doubts else _MET


def _judge_public_addresses(agents: Iterable[ProbedHost]) -> Verdict:
    problems, unknown = [], []
    for agent in agents:
        own = [address for address, owner in agent.addresses.items() if owner == AGENT]
        problems += [f"{agent.name}: {finding.message}" for finding in audit_public_addresses(own)]
        unknown += [] if agent.separation else [agent.name]
    return (False, "; ".join(problems)) if problems else _unless_unknown(unknown)


def _judge_networks(agents: Sequence[ProbedHost]) -> Verdict:
    problems = [
        f"{agent.name}: {problem}" for agent in agents if agent.separation for problem in agent.separation.problems
    ]
    return (False, "; ".join(problems)) if problems else _unless_undeclared(agents)


def _judge_rules(agents: Sequence[ProbedHost]) -> Verdict:
    declared = [agent for agent in agents if agent.separation and agent.separation.declared]
    lacking = [agent.name for agent in declared if agent.separation and not agent.separation.enforced]
    if lacking:
        return False, f"the firewall of {', '.join(lacking)} does not see to it: provision with firewall_mode: enforce"
    return _unless_undeclared(agents)


def _unless_undeclared(agents: Iterable[ProbedHost]) -> Verdict:
    undeclared = [agent.name for agent in agents if agent.separation and not agent.separation.declared]
    if undeclared:
        return None, f"{MANAGEMENT} and {COMPUTE} are not declared for {', '.join(undeclared)}"
    return _unless_unknown([agent.name for agent in agents if not agent.separation])


def _unless_unknown(names: Sequence[str]) -> Verdict:
    return (None, f"the addresses of {', '.join(names)} could not be read") if names else _MET


def _judge_inside(findings: Entries, inside: InsideResults) -> Verdict:
    if findings:
        return False, _first(
            f"{entry['probe_host']} reaches {entry['target']} at {entry['address']}" for entry in findings
        )
    if inside.gaps:
        return None, _first(inside.gaps)
    if not any(reply.probes for reply in inside.replies.values()):
        return None, "no session runs"
    return _MET


def _judge_folders(problems: Sequence[str], folders: FolderResults) -> Verdict:
    if problems:
        return False, _first(problems)
    doubts = [*folders.unread, *([folders.nothing] if folders.nothing else [])]
    return (None, _first(doubts)) if doubts else _MET


def _first(phrases: Iterable[str]) -> str:
    """Return the first different phrases, and how many more there are."""
    listed = list(dict.fromkeys(phrases))
    more = [f"{len(listed) - _SHOWN} more"] if len(listed) > _SHOWN else []
    return "; ".join([*listed[:_SHOWN], *more])
