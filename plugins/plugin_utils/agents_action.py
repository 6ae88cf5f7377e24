# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Base class of the actions on the control node that speak to all agents themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._module import CAPACITY_OPTIONS
from .agent_calls import AgentCalls, Answer, Failure
from .agent_results import HIDDEN
from .control import ControlAction
from .host_link import InventoryHosts, Template, forks, typed_passwords
from .host_request import coerce_variables
from .interruption import interruptible
from .link_pool import LinkPool
from .removed_options import refuse_removed_options

SURVEY_SECONDS = 120


class AgentsAction(ControlAction):
    """An action that runs once, on the control node, and asks agents at the same time, as many as Ansible would."""

    def check_place(self, task_vars: Mapping[str, Any]) -> None:
        """Raise :class:`AnsibleActionFail` if this task would run once for each of several hosts."""
        hosts = task_vars.get("ansible_play_hosts_all") or ()
        if len(hosts) > 1 and not self._task.run_once:
            raise AnsibleActionFail(
                f"this task asks all agents by itself, and would do so for each of the {len(hosts)} hosts of the play:"
                " set run_once: true, or move it to a play with hosts: localhost."
            )

    def agents(self, given: Sequence[str] | None, task_vars: Mapping[str, Any]) -> list[str]:
        """Return the agents that are ``given``, or else those of the inventory.

        Raises :class:`AnsibleActionFail` for one that the inventory does not have.
        """
        hosts = InventoryHosts(task_vars, self._loader)
        if given is None:
            return hosts.matching(str(self._templar.template(task_vars.get("agent_group") or "agents")))
        unknown = [name for name in given if name not in hosts]
        if unknown:
            raise AnsibleActionFail(f"agents: the inventory has no host {unknown[0]!r}.")
        return list(given)

    @contextlib.contextmanager
    def calls(self, task_vars: Mapping[str, Any]) -> Iterator[AgentCalls]:
        """Return what asks agents; an interruption of the run ends the block."""
        passwords = typed_passwords(self._play_context, task_vars)
        with interruptible() as interruption, LinkPool(forks(), interruption.check) as pool:
            yield AgentCalls(
                InventoryHosts(task_vars, self._loader),
                pool,
                passwords,
                check_mode=self._task.check_mode,
                note=self._display.vvv,
            )

    def within_limit(self, agents: Collection[str], task_vars: Mapping[str, Any]) -> list[str]:
        """Return those of the agents that ``--limit`` does not hide."""
        return InventoryHosts(task_vars, self._loader).within_limit(agents)


def survey(
    calls: AgentCalls, agents: Iterable[str], images: Sequence[str] = (), paths: Sequence[str] = ()
) -> dict[str, Mapping[str, Any]]:
    """Return the facts of agents as :func:`control.read_answers` takes them."""

    own: dict[str, Sequence[str]] = {}

    def options(name: str, variables: Mapping[str, Any], template: Template) -> dict[str, Any]:
        own[name] = list(variables)
        settings = coerce_variables(CAPACITY_OPTIONS, "agent_", variables, template)
        return {"images": list(images), "paths": list(paths), "keys_of": [], "settings": settings}

    answers = calls.ask("survey", agents, options, SURVEY_SECONDS)
    return {name: _result(answer, own.get(name, ())) for name, answer in answers.items()}


def _result(answer: Answer, variables: Iterable[str]) -> Mapping[str, Any]:
    if not isinstance(answer, Failure):
        return refuse_removed_options(answer, variables)
    return {"unreachable": True, "msg": answer.message} if answer.unreachable else {"error": answer.message}


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
