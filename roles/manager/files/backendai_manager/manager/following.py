# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Follows the logs of a live session: each of its agents is asked again and again for what is new."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..errors import CommandError, RefusedError
from ..protocol import Result
from .agents import Agents, Ask
from .channel import Channel
from .context import RequestContext
from .ownership import KnownSession

SECONDS = 300
"""How long an agent may take to answer."""

AHEAD = 10_000
"""How many lines are read before the user has read them."""

CANCEL_SECONDS = 0.5

Part = Mapping[str, Any]


def follow_logs(
    context: RequestContext, session: KnownSession, record: Mapping[str, Any], hostname: str, lines: int
) -> Result:
    """Send the last lines of a session's containers, or of the one with that ``hostname``, and then what they print.

    Raises :class:`CommandError` at the end if an agent was lost.
    """
    kernels = record.get("kernels") or []
    if not kernels:
        raise CommandError(f"{session.name} is {record.get('status')}: its containers do not exist yet.")
    selected = [kernel for kernel in kernels if hostname in ("", kernel["hostname"])]
    if not selected:
        known = ", ".join(kernel["hostname"] for kernel in kernels)
        raise RefusedError(f"{hostname} is not a container of {session.name}; it has {known}.")
    names = dict.fromkeys(str(kernel["agent"]) for kernel in selected)
    with context.runs.agents() as agents:
        hosts = [(str(kernel["hostname"]), str(kernel["agent"])) for kernel in selected]
        _Following(context, session, hosts, hostname).run(agents, [*names], lines)
    return Result("done")


def show_logs(channel: Channel, report: Mapping[str, Any]) -> None:
    """Send the lines of a report of logs. Raises :class:`CancelledError`."""
    # In the collection, which is found once the service has started.
    from ansible_collections.backendai.cluster.plugins.plugin_utils._report.logs import render_logs

    for line in render_logs(report):
        channel.wait(0)
        channel.event("line", text=line)


class _Following:
    """What one user follows. ``lost`` are the agents that could not be read, and the reasons."""

    def __init__(
        self, context: RequestContext, session: KnownSession, hosts: list[tuple[str, str]], hostname: str
    ) -> None:
        self._context, self._session, self._hosts, self._hostname = context, session, hosts, hostname
        self._lost: dict[str, str] = {}
        # Lines to show, and the results of threads by agent.
        self._said: queue.Queue[str | tuple[str, Any]] = queue.Queue(AHEAD)

    def run(self, agents: Agents, names: list[str], lines: int) -> None:
        # In the collection, which is found once the service has started.
        from ansible_collections.backendai.cluster.plugins.plugin_utils._report.follow import follow

        asks: dict[str, Ask] = {}
        for name in names:
            try:
                asks[name] = agents.ask(name)
            except CommandError as error:
                self._lost[name] = str(error)
        found = self._in_threads({name: partial(self._read, ask, None, lines) for name, ask in asks.items()})
        parts = {name: part for name, part in found.items() if part is not None}
        self._show_first(parts)
        ended = threading.Event()

        def following(name: str) -> None:
            def read(since: Mapping[str, Mapping[str, int]], lines: int) -> dict[str, Part]:
                part = self._read(asks[name], since[name], lines)
                return {} if part is None else {name: part}

            follow({name: parts[name]}, read, self._said.put, ended)

        self._in_threads({name: partial(following, name) for name in parts})
        if self._lost:
            raise CommandError("\n".join(f"{name} could not be read: {text}" for name, text in self._lost.items()))

    def _read(self, ask: Ask, since: Mapping[str, int] | None, lines: int) -> Part | None:
        """Return an agent's part of the session, with the last lines since a time each; ``None`` if there is none."""
        options = {"session_id": self._session.id, "kernel": self._hostname, "lines": lines, "since": since}
        reply = ask("logs", options, SECONDS)
        if reply["error"]:
            raise CommandError(f"{reply['error']}.")
        return next((part for part in reply["parts"] if part["id"] == self._session.id), None)

    def _show_first(self, parts: Mapping[str, Part]) -> None:
        from ansible_collections.backendai.cluster.plugins.plugin_utils._report.logs import logs_report
        from ansible_collections.backendai.cluster.plugins.plugin_utils._report.verification import AgentReports

        if not parts and not self._lost:
            raise CommandError(f"{self._session.name} has just ended.")
        if parts:
            answers = AgentReports({name: [part] for name, part in parts.items()}, self._lost)
            session = self._session
            report = logs_report(session.id, session.name, self._hosts, parts, answers, self._hostname)
            show_logs(self._context.channel, report)

    def _in_threads(self, work: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """Call a function for each agent, and show what it says; return the results, ``None`` of agents that are lost.

        Threads do not keep the process: that of an agent which does not answer ends with it. Raises
        :class:`CancelledError`.
        """

        def call(name: str, function: Callable[[], Any]) -> None:
            try:
                self._said.put((name, function()))
            except Exception as error:
                self._said.put((name, error))

        for name, function in work.items():
            threading.Thread(target=call, args=[name, function], daemon=True).start()
        results: dict[str, Any] = {}
        while len(results) < len(work):
            self._context.channel.wait(0)
            try:
                item = self._said.get(timeout=CANCEL_SECONDS)
            except queue.Empty:
                continue
            if isinstance(item, str):
                self._context.channel.event("line", text=item)
                continue
            name, result = item
            if isinstance(result, CommandError):
                if len(results) + 1 < len(work):
                    self._context.warn(f"{name} could not be read, and only the others are: {result}")
                self._lost[name], result = str(result), None
            if isinstance(result, Exception):
                raise result
            results[name] = result
        return results
