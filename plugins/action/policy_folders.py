# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the folders of managers' policies on all hosts, from one task on the control node."""

from __future__ import annotations

from typing import Any

from ..module_utils._model.printable import printable
from ..plugin_utils.folders_action import FoldersAction


class ActionModule(FoldersAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        self.check_place(variables)
        managers = self.matching("manager_group", "managers", variables)
        found = self.check_folders(self.agents(None, variables), managers, variables)
        warnings = [*found.problems, *found.unprotected, *found.unread]
        return {**result, "changed": False, "warnings": [printable(f"{text}.") for text in warnings]}
