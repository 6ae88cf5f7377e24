# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Base class of the actions on the control node that speak to all agents themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail

from .agent_calls import AgentCalls, Mode, Tell
from .agent_program import AGENT, HostKind
from .control import ControlAction
from .host_link import RUNS_ONCE, InventoryHosts, displayed_while, forks, strategy_of, typed_passwords
from .interruption import interruptible
from .link_pool import LinkPool


class AgentsAction(ControlAction):
    """An action that runs once, on the control node, and asks agents at the same time, as many as Ansible would."""

    def check_place(self, task_vars: Mapping[str, Any]) -> None:
        """Raise :class:`AnsibleActionFail` if this task would run once for each of several hosts."""
        hosts = task_vars.get("ansible_play_hosts_all") or ()
        if len(hosts) < 2:
            return
        problem = (
            f"this task asks all agents by itself, and would do so for each of the {len(hosts)} hosts of the play:"
        )
        if not self._task.run_once:
            raise AnsibleActionFail(f"{problem} set run_once: true, or move it to a play with hosts: localhost.")
        strategy = strategy_of(self._task)
        if strategy not in RUNS_ONCE:
            raise AnsibleActionFail(
                f"{problem} run_once has no effect with strategy: {strategy}. Move it to a play with hosts: localhost."
            )

    def agents(self, given: Sequence[str] | None, task_vars: Mapping[str, Any]) -> list[str]:
        """Return the agents that are ``given``, or else those of the inventory.

        Raises :class:`AnsibleActionFail` for one that the inventory does not have.
        """
        hosts = InventoryHosts(task_vars, self._loader)
        if given is None:
            return self.matching("agent_group", "agents", task_vars)
        unknown = [name for name in given if name not in hosts]
        if unknown:
            raise AnsibleActionFail(f"agents: the inventory has no host {unknown[0]!r}.")
        return list(given)

    @contextlib.contextmanager
    def calls(self, task_vars: Mapping[str, Any]) -> Iterator[AgentCalls]:
        """Return what asks agents; an interruption of the run ends the block."""
        with self.calls_of((AGENT,), task_vars) as (agents,):
            yield agents

    @contextlib.contextmanager
    def calls_of(
        self,
        kinds: Sequence[HostKind],
        task_vars: Mapping[str, Any],
        tell: Tell = lambda _step, _host, _answer: None,
        *,
        look: bool = False,
    ) -> Iterator[list[AgentCalls]]:
        """Return what asks hosts of each kind; an interruption of the run ends the block, and nothing is shown then.

        With ``look``, hosts only look at something, as in check mode: not even the program stays on them.
        """
        hosts, passwords = InventoryHosts(task_vars, self._loader), typed_passwords(self._play_context, task_vars)
        with (
            interruptible() as interruption,
            displayed_while(interruption.heard),
            LinkPool(forks(), interruption.check) as pool,
        ):
            yield [
                AgentCalls(
                    hosts,
                    pool,
                    passwords,
                    kind=kind,
                    mode=Mode(look or self._task.check_mode, self._task.diff),
                    note=self._display.vvv,
                    tell=tell,
                )
                for kind in kinds
            ]

    def matching(self, variable: str, pattern: str, task_vars: Mapping[str, Any]) -> list[str]:
        """Return the hosts of the inventory that the pattern in a variable matches, or else another one."""
        return self.matched(self._templar.template(task_vars.get(variable) or pattern), task_vars)

    def matched(self, pattern: str | Sequence[str], task_vars: Mapping[str, Any]) -> list[str]:
        """Return the hosts of the inventory that a pattern matches, whatever ``--limit`` says."""
        return InventoryHosts(task_vars, self._loader).matching(pattern)

    def tell(self, line: str) -> None:
        """Show a line of progress, beside what the task prints."""
        self._display.display(line, stderr=True)

    def within_limit(self, agents: Collection[str], task_vars: Mapping[str, Any]) -> list[str]:
        """Return those of the agents that ``--limit`` does not hide."""
        return InventoryHosts(task_vars, self._loader).within_limit(agents)
