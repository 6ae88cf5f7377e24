# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run one step of session starts on an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError

from ..module_utils._model.environment import parse_environment, session_environment
from ..module_utils._model.plan import SessionPlan
from ..module_utils._module import CAPACITY_OPTIONS, CONNECTION_OPTIONS, LIMIT_OPTIONS, REGISTRY_OPTIONS
from ..plugin_utils._lifecycle.start_steps import (
    APPLY,
    CLAIM,
    COMMIT,
    REMOVE,
    UNREACHABLE,
    Start,
    failed_replies,
    read_start,
)
from ..plugin_utils._request.spec import SessionSpec, spec_from_dict
from ..plugin_utils.host_action import HostAction
from ..plugin_utils.host_link import forks
from ..plugin_utils.host_program import COLLECTION
from ..plugin_utils.registry_logins import logins_for, read_registries

# The variables of the control node with results that have requests in ``specs``. They are not passed as options,
# because requests may contain secrets. The queue may have a newer request than the run, so its plan comes last.
REQUEST = "__session_request"
QUEUE_PLAN = "__session_queue_plan"

TEMPLATES = COLLECTION / "roles" / "session" / "templates"

PATIENCE_SECONDS = 15
"""How long an agent waits for the containers of one of several sessions before it goes on with the others."""

STEP_SECONDS = 300
"""Timeout of a step on an agent, in addition to ``session_claim_ttl``."""


class ActionModule(HostAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables, step = task_vars or {}, str(self._task.args["step"])
        agent, hostvars = variables["inventory_hostname"], variables["hostvars"]
        own = [decided for decided in self._task.args["starts"] if agent in decided["agents"]]
        starts = [
            start for start in (read_start(decided, hostvars) for decided in own) if self._steps(start, step, agent)
        ]
        if not starts:
            return {**result, "skipped": True}
        try:
            return {**result, **self._run_step(starts, step, agent, variables)}
        except AnsibleConnectionFailure as error:
            return {**result, "unreachable": True, "msg": str(error), "sessions": failed_replies(starts, UNREACHABLE)}
        except AnsibleActionFail as error:
            raise AnsibleActionFail(str(error), result={"sessions": failed_replies(starts, str(error))}) from None

    def _steps(self, start: Start, step: str, agent: str) -> list[str]:
        """Return the steps of a session that the agent runs now."""
        if step == REMOVE:
            return [REMOVE] if start.failed and not self._task.check_mode else []
        return start.steps_of(agent, step, forks())

    def _options_of_run(self, variables: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options of the run."""
        options: Mapping[str, Any] = variables["hostvars"]["localhost"][REQUEST]["run"]
        return options

    def _run_step(self, starts: Sequence[Start], step: str, agent: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Run the steps of these sessions on the agent, and return the results."""
        requests = [self._session_request(start, self._steps(start, step, agent), agent, variables) for start in starts]
        seconds = STEP_SECONDS + self._options_of_run(variables)["claim_ttl"]
        phase = step if step == REMOVE else "start"
        reply = self.call(phase, {**self._host_options(variables), "sessions": requests}, variables, seconds)
        replies = reply.get("sessions") or {}
        nonces = {start.id: start.decided["nonce"] for start in starts if start.id in replies}
        warnings = [
            f"{start.decided['plan']['name']}: output was lost: {'; '.join(replies[start.id]['lost_output'])}"
            for start in starts
            if start.id in replies and replies[start.id].get("lost_output")
        ]
        told = (text for start in starts for text in replies.get(start.id, {}).get("warnings") or ())
        warnings += [f"{agent}: {text}" for text in told]
        return {
            **reply,
            **({"warnings": warnings} if warnings else {}),
            "sessions": {name: {**replies[name], "nonce": nonce} for name, nonce in nonces.items()},
        }

    def _host_options(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the agent from the inventory."""
        network = self._templar.template(variables.get("agent_default_network") or "backendai-default")
        return {
            **self.variables(CONNECTION_OPTIONS, "agent_", variables),
            "settings": self.variables(CAPACITY_OPTIONS, "agent_", variables),
            "registry": self.variables(REGISTRY_OPTIONS, "agent_", variables),
            "limits": self.variables(LIMIT_OPTIONS, "agent_", variables),
            "default_network": network,
        }

    def _session_request(self, start: Start, steps: list[str], agent: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the request to the agent for one session."""
        decided = start.decided
        request: dict[str, Any] = {"id": start.id, "nonce": decided["nonce"], "steps": steps, "agent": agent}
        # An agent that holds the whole session has no other agents to wait for, and no later step.
        if steps == [APPLY, COMMIT] and len(start.agents) > 1:
            request["may_commit_later"] = True
        if {CLAIM, APPLY} & {*steps}:
            request["plan"] = decided["plan"]
        if CLAIM in steps:
            request |= {
                "stale_sessions": decided["stale_sessions"],
                "never_completed": decided["never_completed"],
            }
            request["seconds"] = self._options_of_run(variables)["claim_ttl"]
        if APPLY in steps and len(self._task.args["starts"]) > 1:
            request["patience"] = PATIENCE_SECONDS
        if APPLY in steps and self._options_of_run(variables)["fresh_home"]:
            request["fresh_home"] = True
        if APPLY in steps:
            request |= {"public_keys": start.public_keys, "images": start.images}
            request["contents"] = self._contents(start, agent, variables)
            images = [kernel["image"] for kernel in decided["plan"]["kernels"] if kernel["agent"] == agent]
            request["logins"] = logins_for(images, read_registries(variables, self._templar))
        return request

    def _contents(self, start: Start, agent: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the rendered files of the agent's containers, and the secrets of the request."""
        plan = SessionPlan.from_dict(start.decided["plan"])
        spec = _spec_of(plan.name, variables["hostvars"]["localhost"])
        template_variables = {"plan": plan}
        return {
            "hosts": self._render("hosts", template_variables, variables),
            "ssh_config": self._render("ssh_config", template_variables, variables),
            "environments": self._render_environments(plan, spec, agent, variables),
            "user_keys": list(spec.authorized_keys),
            "bootstrap": spec.bootstrap_script,
        }

    def _render_environments(
        self, plan: SessionPlan, spec: SessionSpec, agent: str, variables: dict[str, Any]
    ) -> dict[str, dict[str, str]]:
        """Return the environment of each container on the agent, rendered from the template."""
        role_environments = {role.name: role.env for role in spec.effective_roles}
        environments = {}
        for kernel in plan.kernels_on(agent):
            environment = {**role_environments[kernel.role], **session_environment(plan, kernel)}
            template_variables = {"plan": plan, "kernel": kernel, "environment": environment}
            environments[kernel.hostname] = parse_environment(
                self._render("environment", template_variables, variables)
            )
        return environments

    def _render(self, kind: str, template_variables: dict[str, Any], variables: dict[str, Any]) -> str:
        configured = variables.get(f"session_{kind}_template")
        template = str(
            self._templar.template(configured) if configured else self._options_of_run(variables)[f"{kind}_template"]
        )
        lookup = self._shared_loader_obj.lookup_loader.get(
            "ansible.builtin.template", loader=self._loader, templar=self._templar
        )
        try:
            path = self._template_path(template)
            (text,) = lookup.run([path], variables=variables, template_vars=template_variables)
        except AnsibleError as error:
            raise AnsibleActionFail(f"the template {template!r} cannot be rendered: {error}") from error
        return str(text)

    def _template_path(self, template: str) -> str:
        """Return the path of a template: the user's own in Ansible's search path, else the collection's."""
        try:
            return str(self._find_needle("templates", template))
        except AnsibleError:
            default_path = TEMPLATES / template
            if not default_path.is_file():
                raise
            return str(default_path)


def _spec_of(name: str, variables: Mapping[str, Any]) -> SessionSpec:
    """Return the request of a session, from the variables of the control node."""
    specs: dict[str, dict[str, Any]] = {}
    for result in (REQUEST, QUEUE_PLAN):
        specs |= (variables.get(result) or {}).get("specs") or {}
    return spec_from_dict(specs[name])
