# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the facts of agents, and says why there are none of some."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..module_utils._module import CAPACITY_OPTIONS
from .agent_calls import Asks, Failure, Meanwhile
from .agent_results import HIDDEN
from .host_link import Template
from .host_request import coerce_variables
from .removed_options import refuse_removed_options

SURVEY_SECONDS = 120


class Asked(NamedTuple):
    """What agents are asked beside their facts: about images and folders, and the public keys of sessions by id.

    With ``loads`` they measure what sessions use, and with ``others`` they warn of what runs beside sessions.
    """

    images: Sequence[str] = ()
    paths: Sequence[str] = ()
    keys_of: Sequence[str] = ()
    loads: bool = False
    others: bool = False


FACTS_ALONE = Asked()

_DECIDED = ("resource_group", "labels", "topology", "topology_levels", "max_containers", "allow_host_network")
"""The facts that are settings."""

_ALLOWED = {"schedulable": "schedulable", "infiniband": "allow_infiniband"}
"""The facts that need a setting, by name."""


def survey(
    calls: Asks,
    agents: Iterable[str],
    asked: Asked = FACTS_ALONE,
    step: str = "",
    meanwhile: Meanwhile = lambda: None,
) -> dict[str, Mapping[str, Any]]:
    """Return the facts of agents as :func:`cluster_view.read_answers` takes them.

    What the inventory decides is in them as it was sent to each agent, whatever that has replied. ``meanwhile`` is
    called once the agents have been asked.
    """
    sent: dict[str, Mapping[str, Any]] = {}
    own: dict[str, Sequence[str]] = {}

    def options(name: str, variables: Mapping[str, Any], template: Template) -> dict[str, Any]:
        own[name] = list(variables)
        sent[name] = coerce_variables(CAPACITY_OPTIONS, "agent_", variables, template)
        return {**asked._asdict(), "settings": sent[name]}

    answers = calls.ask("survey", agents, options, SURVEY_SECONDS, step, meanwhile)
    return {
        name: _describe_failure(answer)
        if isinstance(answer, Failure)
        else refuse_removed_options(_as_decided(answer, sent[name]), own[name])
        for name, answer in answers.items()
    }


def _as_decided(answer: Mapping[str, Any], settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a reply with what the inventory decides; what that allows, the host may still lack."""
    if not answer.get("agent"):
        return answer
    # As it was sent: text of Ansible has types of its own.
    decided = json.loads(json.dumps({name: settings[name] for name in _DECIDED}))
    denied = {fact: False for fact, setting in _ALLOWED.items() if not settings[setting]}
    return {**answer, "agent": {**answer["agent"], **decided, **denied}}


def _describe_failure(failure: Failure) -> Mapping[str, Any]:
    return {"unreachable": True, "msg": failure.message} if failure.unreachable else {"error": failure.message}


def problems_of(
    agents: Iterable[str], answers: Mapping[str, Mapping[str, Any]], unavailable: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return, by name, the agents without facts: whether one is unreachable, unusable or hidden, and the reason."""
    found = {}
    for name in agents:
        if name not in answers:
            found[name] = {"problem": "hidden", "reason": HIDDEN}
        elif name in unavailable:
            problem = "unreachable" if answers[name].get("unreachable") else "unusable"
            found[name] = {"problem": problem, "reason": unavailable[name]}
    return found
