# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Update the session routes of a gateway."""

from __future__ import annotations

from typing import Any

from ..module_utils._module import GATEWAY_OPTIONS, ROUTES_OPTIONS
from ..plugin_utils.host_action import HostAction

SECONDS = 60


class ActionModule(HostAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        options = self.options({**GATEWAY_OPTIONS, **ROUTES_OPTIONS}, self._task.args)
        return {**result, **self.call("routes", options, task_vars or {}, SECONDS)}
