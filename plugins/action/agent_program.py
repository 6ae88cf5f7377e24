# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Install the agent program for the systemd units of a host."""

from __future__ import annotations

from typing import Any

from ..plugin_utils.host_action import HostAction


class ActionModule(HostAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        return {**result, "changed": self.install(task_vars or {})}
