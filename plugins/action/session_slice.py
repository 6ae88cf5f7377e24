# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Render a session's templates on the control node, then make or remove the slice on the agent."""

from __future__ import annotations

import json
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.backendai.cluster.plugins.module_utils._model.environment import session_environment
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import SessionSpec, spec_from_dict

DEFAULT_TEMPLATES = {
    "hosts_template": "hosts.j2",
    "ssh_config_template": "ssh_config.j2",
    "environment_template": "environment.j2",
}


class ActionModule(ActionBase):
    """The action ``backendai.cluster.session_slice``."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables = task_vars or {}
        args = dict(self._task.args)
        if args.get("plan"):
            args = {**DEFAULT_TEMPLATES, **args}
            # The module does not need it, and short values of a secret option would be censored wherever they occur.
            spec = spec_from_dict(args.pop("spec"))
            args |= self._rendered(SessionPlan.from_dict(args["plan"]), spec, args, variables)
            args["user_keys"] = list(spec.authorized_keys)
            args["bootstrap"] = spec.bootstrap_script
        result.update(self._execute_module(module_args=args, task_vars=variables))
        return result

    def _rendered(
        self, plan: SessionPlan, spec: SessionSpec, args: dict[str, Any], task_vars: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the files of this agent's containers.

        Every template sees ``plan``; that of the environment sees ``kernel`` and ``environment`` too.
        """
        session = {"plan": plan}
        given = {role.name: role.env for role in spec.groups}
        environments, files = {}, {}
        for kernel in plan.kernels_on(args["agent"]):
            environment = {**given[kernel.role], **session_environment(plan, kernel)}
            seen = {**session, "kernel": kernel, "environment": environment}
            environments[kernel.hostname] = environment
            files[kernel.hostname] = self._render(args["environment_template"], seen, task_vars)
        return {
            "hosts": self._render(args["hosts_template"], session, task_vars),
            "ssh_config": self._render(args["ssh_config_template"], session, task_vars),
            "environments": json.dumps(environments),
            "environment_files": files,
        }

    def _render(self, template: str, seen: dict[str, Any], task_vars: dict[str, Any]) -> str:
        lookup = self._shared_loader_obj.lookup_loader.get(
            "ansible.builtin.template", loader=self._loader, templar=self._templar
        )
        try:
            path = self._find_needle("templates", template)
            (text,) = lookup.run([path], variables=task_vars, template_vars=seen)
        except AnsibleError as error:
            raise AnsibleActionFail(f"the template {template!r} cannot be rendered: {error}") from error
        return str(text)
