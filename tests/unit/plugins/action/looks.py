"""A site without hosts for the actions that look at one session."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import Answer, Tell
from ansible_collections.backendai.cluster.plugins.plugin_utils.look_action import LookAction
from tests.unit.plugins.action.asked_hosts import Asked, AskedHosts, Variables


class LookedAt(LookAction):
    """An action that asks agents and gateways without links; to be derived from together with the one under test.

    ``answer`` returns what a host replies, ``hidden`` are those that ``--limit`` hides.
    """

    names: Sequence[str] = ("agent1", "agent2", "agent3")
    answer: Callable[[Asked], Answer]
    hidden: Collection[str] = ()
    hosts: AskedHosts

    def agents(self, _given: Any, _task_vars: Mapping[str, Any]) -> list[str]:
        return list(self.names)

    def within_limit(self, agents: Collection[str], _task_vars: Mapping[str, Any]) -> list[str]:
        return [name for name in agents if name not in self.hidden]

    @contextlib.contextmanager
    def calls_of(
        self,
        _kinds: Sequence[Any],
        _task_vars: Mapping[str, Any],
        _tell: Tell = lambda _step, _host, _answer: None,
        *,
        look: bool = False,
    ) -> Iterator[list[Any]]:
        assert not look
        variables = Variables({name: {} for name in self.names})
        type(self).hosts = AskedHosts(variables, type(self).answer)
        yield [type(self).hosts]
