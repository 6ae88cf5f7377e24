# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Asks the programs on agents without a playbook, over the connections to agents that the user's runs share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import CommandError

Ask = Callable[[str, Mapping[str, Any], int], dict[str, Any]]
"""Returns the result of a phase with its options, which are data, and a timeout in seconds.

Raises :class:`CommandError`.
"""


class Agents:
    """The agents of an inventory. Ansible reads its settings when it is imported here: see ``Runs.agents``.

    From then on, what agents send takes a limited amount of this process's memory.
    """

    def __init__(self, inventory: str) -> None:
        from ansible.inventory.manager import InventoryManager
        from ansible.parsing.dataloader import DataLoader
        from ansible.plugins.loader import init_plugin_loader
        from ansible.vars.manager import VariableManager

        init_plugin_loader()
        # In the collection, which is found now.
        from ansible_collections.backendai.cluster.plugins.plugin_utils.reply_memory import limit_memory

        limit_memory()
        self._loader = DataLoader()
        self._inventory = InventoryManager(self._loader, [inventory])
        self._variables = VariableManager(self._loader, self._inventory)

    def ask(self, name: str) -> Ask:
        """Return what asks the program on an agent, in one thread. Raises :class:`CommandError`."""
        from ansible.errors import AnsibleError
        from ansible.template import Templar

        from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_program import AgentProgram
        from ansible_collections.backendai.cluster.plugins.plugin_utils.reply_memory import TOO_MUCH

        host = self._inventory.get_host(name)
        if host is None:
            raise CommandError("it is not in the manager's inventory.")
        variables = self._variables.get_vars(host=host)
        templar = Templar(self._loader, variables)
        try:
            program = AgentProgram(variables, templar.template)
        except (AnsibleError, TypeError, ValueError) as error:
            raise CommandError(_sentence(error)) from None

        def ask(phase: str, options: Mapping[str, Any], seconds: int) -> dict[str, Any]:
            try:
                return program.call(phase, options, seconds)
            except AnsibleError as error:
                raise CommandError(_sentence(error)) from None
            except MemoryError:
                raise CommandError(TOO_MUCH) from None

        return ask


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if text.endswith(".") else f"{text}."
