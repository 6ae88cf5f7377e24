"""Hosts that are asked by a run without links: what they were asked, and what they answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import lookup_loader
from ansible.template import Templar

from ansible_collections.backendai.cluster.plugins.plugin_utils import host_link
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import (
    Answer,
    Failure,
    Meanwhile,
    OptionsOf,
    Tell,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_replies import check_reply

GONE = Failure("no route to host", unreachable=True)
"""The answer of a host that is away."""


class Variables(dict[str, Mapping[str, Any]]):
    """The variables of hosts, as Ansible hands them to a task."""

    def raw_get(self, name: str) -> Mapping[str, Any]:
        return self[name]


class Asked(NamedTuple):
    """A request to a host."""

    phase: str
    host: str
    options: dict[str, Any]
    seconds: int


class AskedHosts:
    """Stands in for :class:`AgentCalls`; ``answer`` returns what a host replies to a request."""

    def __init__(
        self,
        variables: Mapping[str, Mapping[str, Any]],
        answer: Callable[[Asked], Answer],
        tell: Tell = lambda _step, _host, _answer: None,
    ) -> None:
        self._variables, self._answer, self._tell = variables, answer, tell
        self.asked: list[Asked] = []
        self.given_up = 0

    def ask(
        self,
        phase: str,
        agents: Iterable[str],
        options_of: OptionsOf,
        seconds: int,
        step: str = "",
        meanwhile: Meanwhile = lambda: None,
        answers: dict[str, Answer] | None = None,
    ) -> dict[str, Answer]:
        names, answers = list(agents), {} if answers is None else answers
        if step and names:
            self._tell(step, "", None)
        meanwhile()
        for name in names:
            answers[name] = self._ask(phase, name, options_of, seconds)
        for name, answer in answers.items() if step else ():
            self._tell(step, name, answer)
        return answers

    def give_up(self) -> None:
        self.given_up += 1

    def _ask(self, phase: str, name: str, options_of: OptionsOf, seconds: int) -> Answer:
        variables = self._variables[name]
        template = Templar(loader=DataLoader(), variables=dict(variables)).template
        try:
            # As it travels.
            options = json.loads(json.dumps(options_of(name, variables, template)))
        except AnsibleError as error:
            return Failure(str(error))
        self.asked.append(Asked(phase, name, options, seconds))
        answer = self._answer(self.asked[-1])
        return answer if isinstance(answer, Failure) else check_reply(phase, answer)


def use_short_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find lookups by their short names: full ones need Ansible's importer, which would replace what tests import."""
    found = SimpleNamespace(get=lambda name, **how: lookup_loader.get(name.split(".")[-1], **how))
    monkeypatch.setattr(host_link, "lookup_loader", found)
