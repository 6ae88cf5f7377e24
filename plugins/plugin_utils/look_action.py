# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Base class of the actions that look at sessions and start none: a list, logs, whether one is healthy, a token."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from ..module_utils._model.errors import as_phrase
from ..module_utils._model.printable import printable, printable_data
from ..module_utils._model.validation import ValidationError
from ._queue.entry import QueueEntry
from ._report.record import to_json
from ._report.verification import AgentReports
from ._request.run_options import RunOptions
from .agent_calls import Answer, Failure
from .agent_results import HIDDEN
from .agents_action import AgentsAction
from .host_request import coerce
from .request_file import read_user_options
from .run_request import LOOK, parse_request

SESSION: Mapping[str, str] = {"name": "session_name", "id": "session_id", "queue_path": "session_queue_path"}
"""The variables that are the defaults of options which all of these actions have."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """What agents have returned of a session, and why others have returned nothing, both by name.

    ``unavailable`` has a ``problem``, which is ``unreachable``, ``unusable`` or ``hidden``, and a ``reason``.
    """

    held: Mapping[str, list[dict[str, Any]]]
    unavailable: Mapping[str, Mapping[str, str]]

    @property
    def reports(self) -> AgentReports:
        """The parts and the reasons, for a report."""
        return AgentReports(self.held, {name: agent["reason"] for name, agent in self.unavailable.items()})


def read_parts(agents: Iterable[str], answers: Mapping[str, Answer]) -> Parts:
    """Return the parts in the answers of agents; one that was not asked is hidden."""
    held: dict[str, list[dict[str, Any]]] = {}
    unavailable: dict[str, dict[str, str]] = {}
    for name in agents:
        answer = answers.get(name)
        if answer is None:
            unavailable[name] = {"problem": "hidden", "reason": HIDDEN}
        elif isinstance(answer, Failure):
            problem = "unreachable" if answer.unreachable else "unusable"
            unavailable[name] = {"problem": problem, "reason": as_phrase(answer.message)}
        elif answer["error"]:
            unavailable[name] = {"problem": "unusable", "reason": as_phrase(answer["error"])}
        else:
            held[name] = answer["parts"]
    return Parts(held, unavailable)


class LookAction(AgentsAction):
    """An action that starts no session. Options that are not given are variables of the inventory."""

    purpose = LOOK
    """The purpose of the run, by which the variables are checked."""

    options: Mapping[str, Mapping[str, Any]]
    """The options of the module."""

    variables: Mapping[str, str]
    """The variables that are the defaults of options, by their names."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, known = super().run(tmp, task_vars), task_vars or {}
        self.check_place(known)
        given = {name: value for name, value in coerce(self.options, self._task.args).items() if value is not None}
        style = str(given.pop("format", ""))
        variables = {self.variables[name]: value for name, value in given.items() if name in self.variables}
        values = self.session_variables(known) | variables
        try:
            # From here on, what users give is only read, never passed to the templar.
            run = parse_request(values | read_user_options(values), self.purpose)[1]
            self.check(run)
        except ValidationError as error:
            text = str(error)
            for name in sorted(given, key=len, reverse=True):
                text = text.replace(self.variables.get(name, name), name)
            return {**result, "failed": True, "changed": False, "refused": True, "msg": text}
        return {**result, **self.look(run, known, style=style)}

    @abstractmethod
    def look(self, run: RunOptions, task_vars: Mapping[str, Any], *, style: str) -> dict[str, Any]:
        """Do what the task is for, and return its result; with a ``style`` it is shown, else returned."""

    def check(self, run: RunOptions) -> None:
        """Raise :class:`ValidationError` for options that are not valid for this action."""

    def recorded(self, run: RunOptions, task_vars: Mapping[str, Any]) -> list[QueueEntry]:
        """Return the entries of the queue."""
        return self.entries(self.queue_at(run.queue_path, task_vars))

    def published(
        self,
        report: Mapping[str, Any],
        path: str,
        lines: Iterable[str],
        unavailable: Mapping[str, Mapping[str, str]],
        *,
        shown: bool,
    ) -> dict[str, Any]:
        """Write a report, and show it as lines or else return it; the task fails with its error, if it has one."""
        self.write_report(path, to_json(report))
        away = {name: unavailable[name] for name in report["agents"]}
        result: dict[str, Any] = {"changed": False, "unavailable": away}
        if shown:
            self.show(lines)
        else:
            result |= {name: value for name, value in report.items() if name not in ("agents", "error")}
        if report["error"]:
            result |= {"failed": True, "msg": printable(report["error"])}
        return dict(printable_data(result))
