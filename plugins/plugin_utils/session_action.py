# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Base class of the actions that change sessions: what a run needs of the task that it runs in."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError

from ..module_utils._model.images import Credential
from ..module_utils._model.printable import printable, printable_data
from ..module_utils._model.validation import ValidationError
from ._report.record import to_json, unplanned_record
from ._request.registries import OPTION as REGISTRIES
from ._request.spec import SessionSpec
from ._run.hosts import Hosts
from ._run.outcome import Outcome
from ._run.requests import Requests
from ._run.session_run import SessionRun
from ._run.site import ManagerRules, Site
from .agent_program import AGENT, GATEWAY
from .agents_action import AgentsAction
from .host_link import InventoryHosts, Template, forks
from .host_program import COLLECTION
from .registry_logins import read_registries
from .request_file import read_user_options
from .run_request import read_request
from .session_options import PREFIX

TEMPLATES = COLLECTION / "roles" / "session" / "templates"


class RequestRefusedError(Exception):
    """The request is not valid. The message has a sentence for each problem; nothing was changed."""


class SessionAction(AgentsAction):
    """An action that changes sessions. Its options are variables ``session_*`` without that, and replace them."""

    def run_for(
        self, purpose: str, options: Mapping[str, Any], task_vars: Mapping[str, Any]
    ) -> contextlib.AbstractContextManager[SessionRun]:
        """Return a run with a purpose, for a ``with`` block that an interruption of the run ends.

        Raises :class:`RequestRefusedError` at once, before any host is asked.
        """
        return self._running(self._site(purpose, options, task_vars), options, task_vars)

    def result_of(self, run: SessionRun, **values: Any) -> dict[str, Any]:
        """Return the result of a task, whose text is safe to print; ``values`` may say that it has failed."""
        outcome = run.outcome
        result = {"changed": outcome.changed, "unavailable": run.unavailable, **values}
        if outcome.notes:
            result["notes"] = outcome.notes
        if self._task.diff:
            result["diff"] = outcome.diffs
        if values.get("failed"):
            # Ansible shows no warnings of a failed task, and they may explain the failure.
            for text in outcome.warnings:
                self._display.warning(printable(text))
        elif outcome.warnings:
            result["warnings"] = outcome.warnings
        return dict(printable_data(result))

    @contextlib.contextmanager
    def _running(self, site: Site, options: Mapping[str, Any], task_vars: Mapping[str, Any]) -> Iterator[SessionRun]:
        outcome = Outcome(self.tell)

        def within_limit(names: Any) -> list[str]:
            return self.within_limit(names, task_vars)

        with self.calls_of((AGENT, GATEWAY), task_vars, outcome.take) as (agents, gateways):
            hosts = Hosts(site, agents, gateways, within_limit, outcome)
            yield SessionRun(site, hosts, TaskEdge(self, site, task_vars, options), outcome)

    def _site(self, purpose: str, options: Mapping[str, Any], task_vars: Mapping[str, Any]) -> Site:
        """Return the validated request with what the run works on. Raises :class:`RequestRefusedError`."""
        given = {f"{PREFIX}{name}": value for name, value in options.items()}
        variables = {**self.session_variables(task_vars), **given}
        agents, gateways = self.agents(None, task_vars), self._gateways(task_vars)
        # It parses what has changed since it was read: the request and the run read the same one.
        queue_at = functools.cache(functools.partial(self.queue_at, task_vars=task_vars))
        try:
            # From here on, what users give is only read, never passed to the templar.
            variables |= read_user_options(variables)
            request = read_request(
                purpose,
                variables,
                agents,
                gateways,
                task_vars["hostvars"],
                queue_at,
                self._display.warning,
            )
        except ValidationError as error:
            record = unplanned_record(None, variables.get("session_name"), "ERROR", error=str(error))
            self.write_report(str(variables.get("session_record_path") or ""), to_json(record))
            raise RequestRefusedError(_named_as_given(str(error), options)) from None
        return Site(
            request,
            queue_at(request.run.queue_path),
            task_vars["hostvars"],
            ManagerRules.from_variables(task_vars),
            self._task.check_mode,
        )

    def _gateways(self, task_vars: Mapping[str, Any]) -> list[str]:
        """Return the gateways of the inventory."""
        group = str(self._templar.template(task_vars.get("gateway_group") or "gateways"))
        return list((task_vars.get("groups") or {}).get(group) or ())

    def find_template(self, name: str) -> str:
        """Return the path of a template: the user's own in Ansible's search path, else the collection's."""
        try:
            return str(self._find_needle("templates", name))
        except AnsibleError:
            default_path = TEMPLATES / name
            if not default_path.is_file():
                raise
            return str(default_path)


class TaskEdge:
    """What a run needs of its task. ``options`` are those of the task, which count more than variables of agents."""

    def __init__(
        self, action: SessionAction, site: Site, task_vars: Mapping[str, Any], options: Mapping[str, Any] | None = None
    ) -> None:
        self._action, self._site, self._task_vars, self._options = action, site, task_vars, options or {}
        self._hosts = InventoryHosts(task_vars, action._loader)
        self.forks = forks()

    def requests(self, specs: Mapping[str, SessionSpec], *, several: bool) -> Requests:
        """Return what builds the requests to agents about these sessions, by id."""
        return Requests(self._site.request.run, specs, self._render, self._credentials, several=several)

    def show(self, lines: Iterable[str]) -> None:
        """Show lines to the user."""
        self._action.show(lines)

    def write(self, path: str, content: str) -> None:
        """Write a file that the user has asked for, unless the path is empty."""
        self._action.write_report(path, content)

    def _credentials(self, variables: Mapping[str, Any], template: Template) -> Mapping[str, Credential]:
        """Return the credentials of registries: those of the task, or else an agent's own, or else the run's."""
        name = REGISTRIES.removeprefix(PREFIX)
        if self._options.get(name):
            return read_registries({REGISTRIES: self._options[name]}, lambda value: value)
        if variables.get(REGISTRIES):
            return read_registries(variables, template)
        return read_registries(self._task_vars, self._action._templar.template)

    def _render(self, agent: str, kind: str, known: Mapping[str, Any]) -> str:
        """Return a file of a session, rendered from the template that the task, or else an agent, has chosen for it."""
        variables, template = self._hosts.variables(agent)
        option = f"{kind}_template"
        configured = None if self._options.get(option) else variables.get(f"{PREFIX}{option}")
        name = str(template(configured) if configured else getattr(self._site.request.run, option))
        folders = self._task_vars.get("ansible_search_path") or ()
        try:
            return self._hosts.render(agent, self._action.find_template(name), known, folders)
        except AnsibleError as error:
            raise AnsibleActionFail(f"the template {name!r} cannot be rendered: {error}") from error


def _named_as_given(text: str, options: Iterable[str]) -> str:
    """Return a message with the options of the task as the user has written them."""
    for name in options:
        text = text.replace(f"{PREFIX}{name}", name)
    return text
