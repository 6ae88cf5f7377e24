# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Base class of the actions on the control node: reads variables, facts and the queue, writes reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..module_utils._model.files import write_atomically
from ..module_utils._model.printable import printable
from ._planner.cluster_state import ClusterState
from ._queue.entry import QueueEntry
from ._queue.owner import judge_owner
from ._queue.store import QueueStore, default_path
from .cluster_view import warnings_about


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
        return self.queue_at(str(self._task.args.get("queue_path") or ""), task_vars)

    def queue_at(self, path: str, task_vars: Mapping[str, Any]) -> QueueStore:
        """Return the queue in a folder, or if the path is empty in the one next to the inventory."""
        return QueueStore(path or default_path(task_vars.get("ansible_inventory_sources") or []))

    def entries(self, queue: QueueStore) -> list[QueueEntry]:
        """Return all entries; those of runs that have died are PENDING again, or have no owner."""
        return [judge_owner(entry) for entry in queue.entries()]

    def warnings(self, cluster: ClusterState) -> list[str]:
        """Return a warning for each unavailable agent, and the warnings in the facts of the others."""
        return warnings_about(cluster)

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
