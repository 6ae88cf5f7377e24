# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read what the firewall of a host in report mode would have dropped."""

from __future__ import annotations

from typing import Any

from ..module_utils._module import CONNECTION_OPTIONS
from ..plugin_utils.host_action import HostAction

SECONDS = 60


class ActionModule(HostAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        given = {**self.variables(CONNECTION_OPTIONS, "agent_", variables), **self._task.args}
        options = self.options(CONNECTION_OPTIONS, given)
        return {**result, "changed": False, **self.call("firewall_traffic", options, variables, SECONDS)}
