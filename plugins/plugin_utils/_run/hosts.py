# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of a run: agents that are surveyed, end sessions and wait for them, and gateways that get routes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._model.errors import as_phrase, as_sentence, one_line
from ...module_utils._model.session import MAIN1
from ...module_utils._module import ROUTES_OPTIONS
from .._lifecycle.routes import find_unrouted
from ..agent_calls import Asks, Failure
from ..host_link import Template
from ..host_request import coerce
from ..survey import Asked, survey
from .outcome import Outcome
from .reconciling import Ends, Reconciled
from .site import Site

REAP_SECONDS, REMOVE_SECONDS, ROUTES_SECONDS, LOGS_SECONDS = 600, 600, 60, 300
"""The time limits of requests."""

WAIT_SECONDS, WAIT_LIMIT, WAIT_PAUSE = 60, 90, 1.0
"""How long an agent waits for the end of a command before it answers, its time limit, and the pause until the next."""


class Hosts:
    """The hosts of a run, of which ``within_limit`` returns those that ``--limit`` does not hide."""

    def __init__(
        self,
        site: Site,
        agents: Asks,
        gateways: Asks,
        within_limit: Callable[[Collection[str]], list[str]],
        outcome: Outcome,
    ) -> None:
        self.agents = agents
        self._site, self._gateways, self._within_limit, self._outcome = site, gateways, within_limit, outcome
        self.answers: dict[str, Mapping[str, Any]] = {}
        """What agents have answered to the last survey."""
        self.links: dict[str, list[Mapping[str, Any]]] = {name: [] for name in site.request.gateways}
        """The links to sessions that gateways have returned."""
        self.sent: set[str] = set()
        """The ids of ended sessions that gateways were told of."""
        self._confirmed: dict[str, set[str]] = {}

    def survey(self, names: Iterable[str] | None = None) -> None:
        """Read the facts of all agents, or only those of some again."""
        request = self._site.request
        read = survey(
            self.agents,
            self._within_limit(request.agents) if names is None else names,
            Asked(request.images, request.paths, request.keys_of),
            "Survey the agents",
        )
        self.answers = read if names is None else {**self.answers, **read}

    def update_gateways(self, update: Mapping[str, Any]) -> None:
        """Send gateways the sessions that this run has started and ended, if there are any.

        Sessions run without their gateway, too; the next pass over the queue updates one that is not reached.
        """
        if not update["changed"]:
            return
        values = {name: update[name] for name in ("routes", "ended", "vacated")}

        def options(_name: str, _variables: Mapping[str, Any], _template: Template) -> dict[str, Any]:
            return coerce(ROUTES_OPTIONS, values)

        self.sent.update(update["ended"])
        names = self._within_limit(self._site.request.gateways)
        answers = self._gateways.ask("routes", names, options, ROUTES_SECONDS, "Update the routes of gateways")
        for name, answer in answers.items():
            if isinstance(answer, Failure):
                remedy = "the next run of backendai.cluster.schedule_sessions updates its routes"
                self._outcome.warn(f"{name}: {as_phrase(answer.message)}; {remedy}.")
                continue
            self._outcome.add(name, answer)
            self._warn(name, answer)
            self.links.setdefault(name, []).extend(answer["links"])
            self._confirmed.setdefault(name, set()).update(answer["unrouted"])

    def unrouted(self, update: Mapping[str, Any]) -> list[str]:
        """Return the ids of ended sessions of an update that no gateway has a route to any longer."""
        return find_unrouted(update, self._site.request.gateways, self._confirmed)

    def reap(self, reconciled: Reconciled) -> Ends:
        """Have agents do what follows from the queue, and read those agents again; return how sessions have ended.

        An agent has a say about the sessions that it was asked to end. What fails is a warning: the next run tries
        again. Of other sessions, which may be claims that have expired, the warning names the agent. One that may still
        claim for a start that is to be refused has no facts then, as if it had not answered.
        """
        unrouted = self.unrouted(reconciled.routes)
        names = sorted({*reconciled.agents, *(reconciled.reserving if unrouted else ())})
        if not names:
            return {}

        def options(name: str, _variables: Mapping[str, Any], _template: Template) -> dict[str, Any]:
            return {
                "end": reconciled.end.get(name, []),
                "restart": reconciled.restart.get(name, []),
                "withdraw": dict(reconciled.withdraw.get(name, {})),
                "unrouted": unrouted,
                "history_days": self._site.request.run.history_days,
            }

        ends: dict[str, dict[str, Mapping[str, Any]]] = {}
        title = "Remove ended sessions and restart failed containers"
        for name, answer in self.agents.ask("reap", names, options, REAP_SECONDS, title).items():
            if isinstance(answer, Failure):
                self._outcome.warn(f"{name}: {as_sentence(answer.message)}")
                continue
            self._outcome.add(name, answer)
            self._warn(name, answer)
            for session_id, end in self._ends_of(name, answer, reconciled).items():
                ends.setdefault(session_id, {})[name] = end
        self.survey(names)
        for name, withdrawn in reconciled.withdraw.items():
            if any(name not in ends.get(session_id, {}) for session_id in withdrawn):
                self.answers[name] = {"error": "it could not refuse the last start of a session"}
        return ends

    def _ends_of(self, name: str, answer: Mapping[str, Any], reconciled: Reconciled) -> dict[str, Mapping[str, Any]]:
        """Return how the sessions have ended that an agent was asked about, by id; show what failed."""
        ending, withdrawn = reconciled.end.get(name, []), reconciled.withdraw.get(name, {})
        failures = answer["failures"]
        for session_id, sentence in failures.items():
            known = session_id in (*ending, *withdrawn, *reconciled.restart.get(name, ()))
            self._outcome.warn(f"{'' if known else f'{name}: '}{session_id}: {sentence}")
        ends: dict[str, Mapping[str, Any]] = {session_id: {} for session_id in withdrawn if session_id not in failures}
        for session_id in ending:
            end = (answer.get("ends") or {}).get(session_id)
            if end is not None:
                ends[session_id] = {**end, **({"failed": True} if session_id in failures else {})}
                self._warn_of_lost_output(session_id, end)
        return ends

    def remove(
        self, session_id: str, agents: Sequence[str], unrouted: Sequence[str]
    ) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
        """Have agents remove a session; return what each reports of its end, and why others have not removed it."""
        run = self._site.request.run
        request = {
            "sessions": [{"id": session_id, "nonce": None}],
            "force": run.force,
            "history_days": run.history_days,
            "unrouted": list(unrouted),
        }
        title = "Remove this agent's part of the session"
        answers = self.agents.ask("remove", agents, lambda *_host: request, REMOVE_SECONDS, title)
        ends, failures = {}, {}
        for name, answer in answers.items():
            if isinstance(answer, Failure):
                failures[name] = one_line(answer.message)
                continue
            self._outcome.add(name, answer)
            self._warn(name, answer)
            reply = answer["sessions"].get(session_id)
            if reply is not None:
                ends[name] = reply
                self._warn_of_lost_output(session_id, reply)
                if "failed" in reply:
                    failures[name] = one_line(reply["failed"])
        return ends, failures

    def wait_for_end(self, session_id: str, agent: str) -> int | None:
        """Wait until the command of a session has ended, and return its exit code.

        A restart of the engine, or a broken connection, does not end the wait: it is told once, and so is its end.
        """
        request = {"session_id": session_id, "timeout": WAIT_SECONDS}
        self._outcome.begin("Wait for the command to end")
        away = False
        while True:
            answer = self.agents.ask("wait", [agent], lambda *_host: request, WAIT_LIMIT)[agent]
            if not isinstance(answer, Failure) and answer["ended"]:
                exit_code: int | None = answer["exit_code"]
                return exit_code
            if isinstance(answer, Failure) != away:
                away = not away
                state = f"no answer: {as_phrase(answer.message)}" if isinstance(answer, Failure) else "running"
                self._outcome.note(f"Wait for the command to end ({agent}): {state}")
            time.sleep(WAIT_PAUSE)

    def read_end_of_log(self, session_id: str, agent: str) -> Mapping[str, Any] | None:
        """Return what an agent has of the log of main1; ``None`` if it cannot be read."""
        lines = self._site.request.run.logs_lines
        request = {"session_id": session_id, "kernel": MAIN1, "lines": lines}
        answer = self.agents.ask("logs", [agent], lambda *_host: request, LOGS_SECONDS)[agent]
        if isinstance(answer, Failure) or answer["error"]:
            return None
        return next(iter(answer["parts"]), None)

    def _warn(self, host: str, answer: Mapping[str, Any]) -> None:
        for text in answer.get("warnings") or ():
            self._outcome.warn(f"{host}: {text}")

    def _warn_of_lost_output(self, session_id: str, end: Mapping[str, Any]) -> None:
        lost = "; ".join(end.get("lost_output") or ())
        if lost:
            self._outcome.warn(f"{session_id}: output was lost: {lost}")
