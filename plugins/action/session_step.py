# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Take one step of the sessions that a run starts, on one of their agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError

from ..module_utils._model.environment import parse_environment, session_environment
from ..module_utils._model.plan import SessionPlan
from ..module_utils._module import CAPACITY_OPTIONS, CONNECTION_OPTIONS
from ..plugin_utils._lifecycle.start_steps import (
    APPLY,
    CLAIM,
    OVERLAY,
    PROVE,
    PULL,
    REMOVE,
    UNREACHABLE,
    Start,
    failed_replies,
    read_start,
)
from ..plugin_utils._request.spec import SessionSpec, spec_from_dict
from ..plugin_utils.forks import forks
from ..plugin_utils.host_action import HostAction
from ..plugin_utils.host_program import COLLECTION

# The variables of the control node with the results that have requests, in their ``specs``: requests may be secret, and
# options are not. What waits may have been asked for since the run began, so what is planned of the queue comes last.
REQUEST = "__session_request"
QUEUE_PLAN = "__session_queue_plan"

TEMPLATES = COLLECTION / "roles" / "session" / "templates"

STEP_SECONDS = 300
"""How long a step may take on an agent, beside what a claim gives containers to start."""


class ActionModule(HostAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables, step = task_vars or {}, str(self._task.args["step"])
        agent, hostvars = variables["inventory_hostname"], variables["hostvars"]
        listed = [read_start(decided, hostvars) for decided in self._task.args["starts"]]
        starts = [start for start in listed if agent in start.agents and self._steps(start, step, agent)]
        if not starts:
            return {**result, "skipped": True}
        try:
            return {**result, **self._take(starts, step, agent, variables)}
        except AnsibleConnectionFailure as error:
            return {**result, "unreachable": True, "msg": str(error), "sessions": failed_replies(starts, UNREACHABLE)}
        except AnsibleActionFail as error:
            raise AnsibleActionFail(str(error), result={"sessions": failed_replies(starts, str(error))}) from None

    def _steps(self, start: Start, step: str, agent: str) -> list[str]:
        """Return the steps of a session that the agent takes now."""
        if step == REMOVE:
            return [REMOVE] if start.failed and not self._task.check_mode else []
        return start.steps_of(agent, step, forks())

    def _options_of_run(self, variables: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options of the run."""
        options: Mapping[str, Any] = variables["hostvars"]["localhost"][REQUEST]["run"]
        return options

    def _take(self, starts: Sequence[Start], step: str, agent: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Let the agent take its steps of these sessions, and return what came of it."""
        asked = [self._asked(start, self._steps(start, step, agent), agent, variables) for start in starts]
        seconds = STEP_SECONDS + self._options_of_run(variables)["claim_ttl"]
        phase = step if step in (OVERLAY, REMOVE) else "start"
        done = self.ask(phase, {**self._host(variables), "sessions": asked}, variables, seconds)
        replies = done.get("sessions") or {}
        mine = {start.id: start.decided["nonce"] for start in starts if start.id in replies}
        return {**done, "sessions": {name: {**replies[name], "nonce": nonce} for name, nonce in mine.items()}}

    def _host(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the inventory says of the agent."""
        network = self._templar.template(variables.get("agent_default_network") or "backendai-default")
        return {
            **self.variables(CONNECTION_OPTIONS, "agent_", variables),
            "settings": self.variables(CAPACITY_OPTIONS, "agent_", variables),
            "default_network": network,
        }

    def _asked(self, start: Start, steps: list[str], agent: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Return what the agent is asked about one session."""
        decided = start.decided
        asked: dict[str, Any] = {"id": start.id, "nonce": decided["nonce"], "steps": steps, "agent": agent}
        if steps == [APPLY, PROVE]:
            asked["may_prove_later"] = True
        if {CLAIM, APPLY, OVERLAY} & {*steps}:
            asked["plan"] = decided["plan"]
        if CLAIM in steps:
            asked |= {
                "request": decided["request"],
                "stale_sessions": decided["stale_sessions"],
                "never_completed": decided["never_completed"],
            }
            asked["seconds"] = self._options_of_run(variables)["claim_ttl"]
        if APPLY in steps:
            asked |= {"public_keys": start.public_keys, "images": self._images(start)}
            asked["contents"] = self._contents(start, agent, variables)
        return asked

    def _images(self, start: Start) -> dict[str, Any]:
        """Return the images that the session's agents have, by agent and name, those that were pulled among them."""
        images = {agent: dict(known) for agent, known in start.decided["images"].items()}
        for agent, reply in start.results.get(PULL, {}).items():
            images.setdefault(agent, {}).update(reply.get("images") or {})
        return images

    def _contents(self, start: Start, agent: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the files of the agent's containers, rendered here, and what is secret about the request."""
        plan = SessionPlan.from_dict(start.decided["plan"])
        spec = _spec_of(plan.name, variables["hostvars"]["localhost"])
        seen = {"plan": plan}
        return {
            "hosts": self._rendered("hosts", seen, variables),
            "ssh_config": self._rendered("ssh_config", seen, variables),
            "environments": self._environments(plan, spec, agent, variables),
            "user_keys": list(spec.authorized_keys),
            "bootstrap": spec.bootstrap_script,
        }

    def _environments(
        self, plan: SessionPlan, spec: SessionSpec, agent: str, variables: dict[str, Any]
    ) -> dict[str, dict[str, str]]:
        """Return the environment of each container on the agent, as the template has it."""
        given = {role.name: role.env for role in spec.effective_roles}
        environments = {}
        for kernel in plan.kernels_on(agent):
            environment = {**given[kernel.role], **session_environment(plan, kernel)}
            seen = {"plan": plan, "kernel": kernel, "environment": environment}
            environments[kernel.hostname] = parse_environment(self._rendered("environment", seen, variables))
        return environments

    def _rendered(self, kind: str, seen: dict[str, Any], variables: dict[str, Any]) -> str:
        own = variables.get(f"session_{kind}_template")
        template = str(self._templar.template(own) if own else self._options_of_run(variables)[f"{kind}_template"])
        lookup = self._shared_loader_obj.lookup_loader.get(
            "ansible.builtin.template", loader=self._loader, templar=self._templar
        )
        try:
            path = self._template_path(template)
            (text,) = lookup.run([path], variables=variables, template_vars=seen)
        except AnsibleError as error:
            raise AnsibleActionFail(f"the template {template!r} cannot be rendered: {error}") from error
        return str(text)

    def _template_path(self, template: str) -> str:
        """Return the path of a template: the user's own, searched for as in any play, or else the collection's."""
        try:
            return str(self._find_needle("templates", template))
        except AnsibleError:
            own = TEMPLATES / template
            if not own.is_file():
                raise
            return str(own)


def _spec_of(name: str, variables: Mapping[str, Any]) -> SessionSpec:
    """Return the request of a session, from the variables of the control node."""
    specs: dict[str, dict[str, Any]] = {}
    for result in (REQUEST, QUEUE_PLAN):
        specs |= (variables.get(result) or {}).get("specs") or {}
    return spec_from_dict(specs[name])
