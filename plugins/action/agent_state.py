# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take agents out of service, or back into it, from one task on the control node."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._model.errors import as_phrase
from ..module_utils._model.printable import printable, printable_data
from ..module_utils._model.validation import ValidationError
from ..plugin_utils._placement.unschedulable import join_names
from ..plugin_utils.agent_calls import Answer, Failure
from ..plugin_utils.agent_names import VARIABLES, NameOptions, select_agents
from ..plugin_utils.agent_results import HIDDEN
from ..plugin_utils.agents_action import AgentsAction
from ..plugin_utils.host_link import Template
from ..plugin_utils.host_request import coerce, coerce_variables

CORDONED, DRAINED, RESUMED = "cordoned", "drained", "resumed"

OPTIONS: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": [CORDONED, DRAINED, RESUMED], "required": True},
    "agents": {"type": "list", "elements": "str"},
    "all_confirmed": {"type": "bool"},
    "reason": {"type": "str"},
    "deadline": {"type": "int"},
}

CONFIRMATION: dict[str, dict[str, Any]] = {"all_confirmed": {"type": "bool", "default": False}}
"""The variable of the control node by which all agents may be taken out of service."""

REASON: dict[str, dict[str, Any]] = {"cordon_reason": {"type": "str", "default": ""}}
DEADLINE: dict[str, dict[str, Any]] = {"drain_deadline": {"type": "int", "default": 0}}
"""The variables of each agent, without their prefix, for what the task does not say."""

MAX_SECONDS = 366 * 86400
"""The longest time until sessions end."""

MAX_REASON = 200
"""How many characters a reason may have: it is part of other sentences."""

SECONDS = 120


class ActionModule(AgentsAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        options = coerce(OPTIONS, self._task.args)
        # A task that only asks the host that it is for may run for each of several hosts.
        if options["agents"] is None or options["agents"] != [variables.get("inventory_hostname")]:
            self.check_place(variables)
        _check_options(options)
        names = self._names(options, variables)
        return {**result, **self._result(options["state"], names, self._ask(options, names, variables))}

    def _names(self, options: Mapping[str, Any], variables: Mapping[str, Any]) -> list[str]:
        """Return the agents that the task names, or else the variable of the playbooks."""
        named, confirmed = options["agents"], options["all_confirmed"]
        shown = VARIABLES if named is None else NameOptions("agents", "all_confirmed")
        if named is None:
            named = self._templar.template(variables.get(VARIABLES.names) or [])
        if confirmed is None:
            own = coerce_variables(CONFIRMATION, "agent_", variables, self._templar.template)
            confirmed = own["all_confirmed"]
        try:
            return select_agents(
                named, self.agents(None, variables), confirmed=confirmed or options["state"] == RESUMED, options=shown
            )
        except ValidationError as error:
            raise AnsibleActionFail(str(error)) from None

    def _ask(self, options: Mapping[str, Any], names: Sequence[str], variables: Mapping[str, Any]) -> dict[str, Answer]:
        """Return what the agents answer that ``--limit`` does not hide."""
        by = getpass.getuser()

        def options_of(_name: str, own: Mapping[str, Any], template: Template) -> dict[str, Any]:
            return {"by": by, **_cordon(options, own, template)}

        with self.calls(variables) as calls:
            return calls.ask("cordon", self.within_limit(names, variables), options_of, SECONDS)

    def _result(self, state: str, names: Sequence[str], answers: Mapping[str, Answer]) -> dict[str, Any]:
        """Show what is now true of each agent, and return it."""
        replies = {name: answer for name, answer in answers.items() if not isinstance(answer, Failure)}
        failures = {name: answer for name, answer in answers.items() if isinstance(answer, Failure)}
        unavailable = {name: {"problem": "hidden", "reason": HIDDEN} for name in names if name not in answers}
        for name in unavailable:
            self._display.warning(printable(f"{name} is left out: {HIDDEN}."))
        for name, failure in failures.items():
            problem = "unreachable" if failure.unreachable else "unusable"
            unavailable[name] = {"problem": problem, "reason": as_phrase(failure.message)}
        self.show(_summary(name, reply) for name, reply in replies.items())
        rows = [{"name": name, **_row(reply)} for name, reply in replies.items()]
        result: dict[str, Any] = {
            "changed": any(row["changed"] for row in rows),
            "agents": rows,
            "unavailable": unavailable,
        }
        if self._task.diff:
            result["diff"] = [
                {"before_header": name, "after_header": name, **reply["diff"]}
                for name, reply in replies.items()
                if reply.get("diff") and reply["changed"]
            ]
        if failures:
            reasons = [f"{name} was not {state}: {unavailable[name]['reason']}." for name in failures]
            result |= {"failed": True, "msg": " ".join(reasons)}
        return dict(printable_data(result))


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise :class:`AnsibleActionFail` for options without a sense, before any agent is asked."""
    reason, deadline = options["reason"], options["deadline"]
    if reason is not None:
        if options["state"] == RESUMED:
            raise AnsibleActionFail(f"reason: it is for agents that are taken out of service, not for state={RESUMED}.")
        _check_reason("reason", reason)
    if deadline is not None:
        if options["state"] != DRAINED:
            raise AnsibleActionFail(f"deadline: sessions only end with state={DRAINED}.")
        _check_deadline("deadline", deadline)


def _cordon(options: Mapping[str, Any], variables: Mapping[str, Any], template: Template) -> dict[str, Any]:
    """Return what an agent is asked to do: what the task does not say is in variables of the agent."""
    state, reason, seconds = options["state"], options["reason"], options["deadline"]
    if state == RESUMED:
        return {"state": "absent", "reason": "", "sessions_end_after": None}
    if reason is None:
        reason = coerce_variables(REASON, "agent_", variables, template)["cordon_reason"] or ""
        _check_reason("agent_cordon_reason", reason)
    if state == DRAINED and seconds is None:
        seconds = coerce_variables(DEADLINE, "agent_", variables, template)["drain_deadline"] or 0
        _check_deadline("agent_drain_deadline", seconds)
    return {"state": "present", "reason": reason, "sessions_end_after": seconds}


def _check_reason(option: str, reason: str) -> None:
    if len(reason) > MAX_REASON or not reason.isprintable():
        raise AnsibleActionFail(f"{option}: it must be one line of at most {MAX_REASON} characters.")


def _check_deadline(option: str, seconds: int) -> None:
    if not 0 <= seconds <= MAX_SECONDS:
        raise AnsibleActionFail(f"{option}: {seconds} must be 0 to {MAX_SECONDS} seconds.")


def _row(reply: Mapping[str, Any]) -> dict[str, Any]:
    return {name: reply[name] for name in ("changed", "cordoned_before", "description", "sessions")}


def _summary(agent: str, reply: Mapping[str, Any]) -> str:
    """Return what is now true of an agent, as a line."""
    if not reply["description"]:
        return f"{agent} takes new sessions."
    sessions = f"still there: {join_names(reply['sessions'])}" if reply["sessions"] else "no session is left on it"
    return f"{agent} takes no new sessions: {reply['description']}; {sessions}."
