# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Base class of the actions that check the folders of managers' policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ._exposure.policy_folders import FolderHosts, FolderResults, check_folders
from .agent_program import AGENT, HostKind
from .agents_action import AgentsAction

MANAGER = HostKind("", {})
"""A manager, whose folders the program has no option for."""


class FoldersAction(AgentsAction):
    """An action that checks the folders of policies, on the agents and managers of the inventory."""

    def check_folders(
        self, agents: Sequence[str], managers: Sequence[str], task_vars: Mapping[str, Any]
    ) -> FolderResults:
        """Return what is wrong with the folders of the policies of managers. Nothing stays on the hosts."""
        hostvars = task_vars["hostvars"]
        present = [name for name in managers if hostvars[name].get("manager_state", "present") == "present"]

        def shown(names: Sequence[str]) -> list[str]:
            return self.within_limit(names, task_vars)

        with self.calls_of((AGENT, MANAGER), task_vars, look=True) as (of_agents, of_managers):
            return check_folders(FolderHosts(agents, managers, present, of_agents, of_managers, shown))
