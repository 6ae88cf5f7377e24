# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say how a creation ended, and fail where it failed, on the control node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.plugin_utils._lifecycle.outcome import summary
from ansible_collections.backendai.cluster.plugins.plugin_utils._queue.entry import ENDED, ENDING
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.access import described, links_of
from ansible_collections.backendai.cluster.plugins.plugin_utils._report.record import as_json
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction


class ActionModule(ControlAction):
    """The action ``backendai.cluster.session_verdict``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args = self._task.args
        record = args["record"]
        later = [one for one in args.get("started") or [] if one["id"] == record["id"]]
        if args.get("waited"):
            entry = self.queue(task_vars or {}).entry(record["id"])
            later += [entry.record] if entry and entry.state in (ENDING, ENDED) else []
        if later:
            record = later[-1]
            self.write(args.get("path") or "", as_json(record))
        links = links_of(record["id"], args.get("links") or {}) if record["status"] == "RUNNING" else []
        self.write(args.get("access_path") or "", as_json(links))
        for line in [
            *summary(record, check_mode=self._task.check_mode),
            *described(str(record["name"]), links, args.get("host_key") or ""),
        ]:
            self._display.display(line)
        error = args.get("error") or record["error"] or (_failure(record) if args.get("waited") else None)
        if error:
            raise AnsibleActionFail(error)
        return {**result, "changed": False, "record": record, "access": links}


def _failure(record: Mapping[str, Any]) -> str | None:
    """Return why a session that was waited for did not end well; ``None`` where its command did."""
    if "exit_code" not in record:
        return f"the session {record['name']!r} runs on: its agent could not be asked any more."
    return None if record["exit_code"] == 0 else f"the session {record['name']!r} is over: {record['reason']}."
