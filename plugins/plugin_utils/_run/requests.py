# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What agents are asked for in the steps of a start: the plan of a session, its files, and secrets that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...module_utils._model.environment import parse_environment, session_environment
from ...module_utils._model.images import Credential
from ...module_utils._model.plan import SessionPlan
from ...module_utils._module import CAPACITY_OPTIONS, LIMIT_OPTIONS, REGISTRY_OPTIONS
from .._lifecycle.start_steps import APPLY, CLAIM, COMMIT, REMOVE, Start
from .._request.run_options import RunOptions
from .._request.spec import SessionSpec
from ..host_link import Template
from ..host_request import coerce_variables
from ..registry_logins import logins_for

PATIENCE_SECONDS = 15
"""How long an agent waits for the containers of one of several sessions before it goes on with the others."""

DEFAULT_NETWORK = "backendai-default"

Render = Callable[[str, str, Mapping[str, Any]], str]
"""Renders a template of an agent, from its name, that of the kind of the template, and variables for it."""

Work = Sequence[tuple[Start, Sequence[str]]]
"""The sessions that an agent works on, with the steps to take."""


class Requests:
    """Builds the requests to agents about sessions; ``specs`` are those of the sessions, by id.

    ``several`` is whether the run starts more than one session at once. Text that users wrote is data: it is never
    passed to the templar.
    """

    def __init__(
        self,
        run: RunOptions,
        specs: Mapping[str, SessionSpec],
        render: Render,
        credentials: Callable[[Mapping[str, Any], Template], Mapping[str, Credential]],
        *,
        several: bool,
    ) -> None:
        self._run, self._specs, self._render, self._credentials = run, specs, render, credentials
        self._several = several

    def options(self, agent: str, work: Work, variables: Mapping[str, Any], template: Template) -> dict[str, Any]:
        """Return the options of a request to an agent, from its variables and what renders templates in them."""
        sessions = [self._session(start, steps, agent, variables, template) for start, steps in work]
        return {**host_options(variables, template), "sessions": sessions}

    def pull_options(
        self, start: Start, name: str, reference: str, variables: Mapping[str, Any], template: Template
    ) -> dict[str, Any]:
        """Return the options of a request to pull an image, or to renew a claim if it has no name."""
        logins = logins_for([name], self._credentials(variables, template)) if name else {}
        return {
            "registry": coerce_variables(REGISTRY_OPTIONS, "agent_", variables, template),
            "session_id": start.id,
            "nonce": start.decided["nonce"],
            "seconds": self._run.claim_ttl,
            "name": name,
            "reference": reference,
            "logins": logins,
        }

    def _session(
        self,
        start: Start,
        steps: Sequence[str],
        agent: str,
        variables: Mapping[str, Any],
        template: Template,
    ) -> dict[str, Any]:
        """Return the request to the agent for one session."""
        decided = start.decided
        request: dict[str, Any] = {"id": start.id, "nonce": decided["nonce"], "steps": list(steps), "agent": agent}
        # An agent that holds the whole session has no other agents to wait for, and no later step.
        if request["steps"] == [APPLY, COMMIT] and len(start.agents) > 1:
            request["may_commit_later"] = True
        if {CLAIM, APPLY} & {*steps}:
            request["plan"] = decided["plan"]
        if CLAIM in steps:
            request |= {
                "stale_sessions": decided["stale_sessions"],
                "never_completed": decided["never_completed"],
                "seconds": self._run.claim_ttl,
            }
        if APPLY in steps:
            if self._several:
                request["patience"] = PATIENCE_SECONDS
            if self._run.fresh_home:
                request["fresh_home"] = True
            images = [kernel["image"] for kernel in decided["plan"]["kernels"] if kernel["agent"] == agent]
            request |= {
                "public_keys": start.public_keys,
                "images": start.images,
                "contents": self._contents(start, agent),
                "logins": logins_for(images, self._credentials(variables, template)),
            }
        return request

    def _contents(self, start: Start, agent: str) -> dict[str, Any]:
        """Return the rendered files of the agent's containers, and the secrets of the request."""
        plan, spec = SessionPlan.from_dict(start.decided["plan"]), self._specs[start.id]
        known = {"plan": plan}
        return {
            "hosts": self._render(agent, "hosts", known),
            "ssh_config": self._render(agent, "ssh_config", known),
            "environments": self._environments(plan, spec, agent),
            "user_keys": list(spec.authorized_keys),
            "bootstrap": spec.bootstrap_script,
        }

    def _environments(self, plan: SessionPlan, spec: SessionSpec, agent: str) -> dict[str, dict[str, str]]:
        """Return the environment of each container on the agent, rendered from the template."""
        of_roles = {role.name: role.env for role in spec.effective_roles}
        environments = {}
        for kernel in plan.kernels_on(agent):
            environment = {**of_roles[kernel.role], **session_environment(plan, kernel)}
            text = self._render(agent, "environment", {"plan": plan, "kernel": kernel, "environment": environment})
            environments[kernel.hostname] = parse_environment(text)
        return environments


def host_options(variables: Mapping[str, Any], template: Template) -> dict[str, Any]:
    """Return the options of an agent from the inventory."""
    return {
        "settings": coerce_variables(CAPACITY_OPTIONS, "agent_", variables, template),
        "registry": coerce_variables(REGISTRY_OPTIONS, "agent_", variables, template),
        "limits": coerce_variables(LIMIT_OPTIONS, "agent_", variables, template),
        "default_network": template(variables.get("agent_default_network") or DEFAULT_NETWORK),
    }


def phase_of(step: str) -> str:
    """Return the phase of the program that takes a step."""
    return REMOVE if step == REMOVE else "start"
