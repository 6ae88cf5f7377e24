# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Base class of the actions on the control node: reads variables, facts and the queue, writes reports."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import uuid
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase

from ..module_utils._model.facts import AgentFacts
from ..module_utils._model.files import write_atomically
from ..module_utils._model.images import ImageIdentity
from ..module_utils._model.plain_data import DataError, to_plain
from ..module_utils._model.printable import printable
from ..module_utils._module import CAPACITY_OPTIONS
from ._planner.cluster_state import ClusterState, InventoryAgent
from ._planner.decision import Decision
from ._queue.entry import CREATING, QueueEntry, abandoned, mark_pending, recorded_plans, reserved_plans
from ._queue.owner import owner_is_alive
from ._queue.store import QueueStore, default_path
from .host_request import coerce_variables

AGENT_RESULT = "__session_agent"
"""The variable of each agent that contains the result of ``agent_info``."""

INVENTORY_ADDRESSES = ("ansible_host", "agent_underlay_address")
"""The variables of an agent by which the inventory gives it an address."""

OWNER_TIMEOUT = 7200.0
"""Seconds after which a run on another machine that shares the queue counts as dead."""


def start_arguments(
    decision: Decision,
    stale_sessions: Iterable[str],
    *,
    never_completed: bool,
    recorded_images: Mapping[str, ImageIdentity] | None = None,
) -> dict[str, Any]:
    """Return the arguments that agents need to carry out a decision, without secrets.

    ``never_completed``: the session is in the queue, and no run has completed it yet. ``stale_sessions`` are the ids of
    sessions that ended while an agent was unreachable: agents that still hold them remove them. ``recorded_images``
    are those that the session was started with, by name. What agents have committed before stays if the start fails
    and ``repairs`` another one: an earlier run has completed it.
    """
    plan = decision.plan
    return {
        "plan": plan.to_dict(),
        "id": plan.id,
        "existing": decision.existing,
        "never_completed": never_completed,
        "repairs": decision.committed and (bool(decision.public_keys) or not never_completed),
        "agents": plan.agents,
        "missing_images": decision.missing_images,
        "images": decision.images,
        "recorded_images": to_plain(dict(recorded_images or {})),
        "route_problem": decision.route_problem,
        "public_keys": decision.public_keys,
        "nonce": uuid.uuid4().hex,
        "stale_sessions": list(stale_sessions),
    }


def _judge_owner(entry: QueueEntry) -> QueueEntry:
    """Return an entry of a dead run without its owner, PENDING again if nobody learned of the failure; others as is."""
    if entry.state != CREATING or not abandoned(entry, owner_is_alive(entry, OWNER_TIMEOUT)):
        return entry
    ownerless = dataclasses.replace(entry, owner=None)
    return mark_pending(ownerless, entry.record, entry.updated_at) if entry.waits_for_start else ownerless


def registered(name: str, hostvars: Any) -> Mapping[str, Any]:
    """Return the variables of a host with the results of tasks, as they are.

    Ansible would look for templates in each of their texts, which takes far longer than to parse them.
    """
    variables: Mapping[str, Any] = hostvars.raw_get(name) if hasattr(hostvars, "raw_get") else hostvars[name]
    return variables


def read_answers(answers: Mapping[str, Mapping[str, Any]], entries: Iterable[QueueEntry] = ()) -> ClusterState:
    """Return the facts of the agents that have returned some, and the errors of the others.

    The plans of ``entries`` are those of the record. An agent with corrupt facts is unavailable,
    and all others can be used.
    """
    facts: dict[str, AgentFacts] = {}
    unavailable: dict[str, str] = {}
    for name, result in answers.items():
        if result.get("agent"):
            try:
                facts[name] = AgentFacts.from_dict(name, result["agent"])
            except DataError as error:
                unavailable[name] = str(error)
        else:
            unavailable[name] = str(result.get("error") or result.get("msg", "it returned no facts"))
    reasons = {name: " ".join(reason.split()).rstrip(".") for name, reason in unavailable.items()}
    return ClusterState(facts, reasons, recorded_plans(entries))


def attendance_in(answers: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the agents that could not be reached, and those that answered."""
    away = [name for name, result in answers.items() if result.get("unreachable")]
    return away, [name for name in answers if name not in frozenset(away)]


def read_agent(variables: Mapping[str, Any]) -> InventoryAgent:
    """Return what the inventory says of an agent; nothing if a variable depends on facts that were not gathered."""
    options = {name: CAPACITY_OPTIONS[name] for name in InventoryAgent._fields}
    try:
        values = coerce_variables(options, "agent_", variables, lambda value: value)
    except (AnsibleError, TypeError):
        return InventoryAgent()
    return InventoryAgent(values["resource_group"], frozenset(values["labels"]))


def read_addresses(name: str, variables: Mapping[str, Any]) -> list[str]:
    """Return the addresses that the inventory gives a host; host names are not resolved."""
    addresses = []
    for variable in INVENTORY_ADDRESSES:
        # A variable may depend on facts that were not gathered.
        with contextlib.suppress(ValueError, AnsibleError):
            addresses.append(str(ipaddress.ip_address(str(variables.get(variable) or name))))
    return addresses


_NOT_RESTORED = "{name}: its sessions are not restored after a reboot; run backendai.cluster.provision_agents."


class ControlAction(ActionBase):
    """An action that runs on the control node only, without a connection or a module."""

    _requires_connection = False
    TRANSFERS_FILES = False

    def session_variables(self, task_vars: Mapping[str, Any]) -> dict[str, Any]:
        """Return all variables that begin with ``session_``, templated."""
        names = [name for name in task_vars if name.startswith("session_")]
        return {name: self._templar.template(task_vars[name]) for name in names}

    def queue(self, task_vars: Mapping[str, Any]) -> QueueStore:
        """Return the queue of this task, by default the folder next to the inventory."""
        path = str(self._task.args.get("queue_path") or "")
        return QueueStore(path or default_path(task_vars.get("ansible_inventory_sources") or []))

    def transaction(self, queue: QueueStore) -> AbstractContextManager[None]:
        """Hold the queue's lock while entries are read and written; check mode only reads and needs no lock."""
        return nullcontext() if self._task.check_mode else queue.lock()

    def entries(self, queue: QueueStore) -> list[QueueEntry]:
        """Return all entries; those of runs that have died are PENDING again, or have no owner."""
        return [_judge_owner(entry) for entry in queue.entries()]

    def entry(self, queue: QueueStore, session_id: str) -> QueueEntry | None:
        """Return one entry as :meth:`entries` does."""
        entry = queue.entry(session_id)
        return _judge_owner(entry) if entry else None

    def agent_result(self, name: str, task_vars: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return what an agent has returned in this run, if anything, as it is."""
        result: Mapping[str, Any] | None = registered(name, task_vars["hostvars"]).get(AGENT_RESULT)
        return result

    def cluster_state(
        self, agents: list[str], task_vars: Mapping[str, Any], entries: Iterable[QueueEntry] = ()
    ) -> ClusterState:
        """Return :func:`read_answers` of the agents; one without a result in this run appears nowhere."""
        results = {name: self.agent_result(name, task_vars) for name in agents}
        return read_answers({name: result for name, result in results.items() if result is not None}, entries)

    def attendance(self, agents: Iterable[str], task_vars: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Return the agents that could not be reached in this run, and those that answered; others were not asked."""
        results = {name: self.agent_result(name, task_vars) for name in agents}
        return attendance_in({name: result for name, result in results.items() if result is not None})

    def with_addresses(self, cluster: ClusterState, task_vars: Mapping[str, Any]) -> ClusterState:
        """Return the state with the addresses that the inventory gives agents; only routes need them."""
        hostvars = task_vars["hostvars"]
        addresses = {name: read_addresses(name, hostvars[name]) for name in self._task.args["agents"]}
        return dataclasses.replace(cluster, addresses=addresses)

    def with_inventory(self, cluster: ClusterState, task_vars: Mapping[str, Any]) -> ClusterState:
        """Return the state with what the inventory says of agents that cannot be used."""
        names = self._task.args["agents"]
        known = {name: read_agent(task_vars["hostvars"][name]) for name in names if name in cluster.unavailable}
        return dataclasses.replace(cluster, inventory=known, unreachable=self.attendance(names, task_vars)[0])

    def with_reservations(self, cluster: ClusterState, entries: Iterable[QueueEntry], own_id: str = "") -> ClusterState:
        """Return the state as it will be after other active runs have claimed what they have planned."""
        for plan in reserved_plans(entries, cluster.sessions, own_id):
            cluster = cluster.with_plan(plan)
        return cluster

    def warnings(self, cluster: ClusterState) -> list[str]:
        """Return a warning for each unavailable agent, and the warnings in the facts of the others."""
        messages = [f"{name} is left out: {reason}." for name, reason in cluster.unavailable.items()]
        messages += [_NOT_RESTORED.format(name=name) for name, facts in cluster.facts.items() if not facts.program]
        messages += [
            f"{name}: {text}" for name, facts in cluster.facts.items() for text in (*facts.obstacles, *facts.warnings)
        ]
        return [printable(message) for message in messages]

    def show(self, lines: Iterable[str]) -> None:
        """Show lines on the terminal, control characters escaped: records in the queue may be other people's."""
        # At once, since each call is a message from this process to that of the playbook.
        text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
        if text:
            self._display.display(printable(text))

    def write_report(self, path: str, content: str, mode: int = 0o600) -> None:
        """Write a report on the control node, atomically; does nothing in check mode, or if the path is empty.

        By default only its owner can read it, because errors quote what users wrote. A report does not change the
        cluster, so the task is not "changed". Raises :class:`AnsibleActionFail` for I/O errors.
        """
        if not path or self._task.check_mode:
            return
        try:
            write_atomically(Path(path).expanduser().absolute(), content, mode, durable=False)
        except OSError as error:
            raise AnsibleActionFail(f"{path!r} cannot be written: {error.strerror}.") from None
