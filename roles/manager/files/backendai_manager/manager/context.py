# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every verb of the manager's part needs: the caller, the policy, the sessions, and a way to run playbooks."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import CommandError, RefusedError
from ..options import Options, load_options
from ..paths import Paths
from ..policy import Policy, load_policy
from .channel import Channel
from .identity import Accounts, Caller
from .ownership import ID, KnownSession, find_session, not_found
from .queue import Queue
from .queue_check import judge_queue
from .run_events import RunEvents
from .runs import Runs
from .settings import Settings
from .slots import Slots

LIST = "session_list_path"


@dataclasses.dataclass(frozen=True)
class RequestContext:
    """The context of one request."""

    paths: Paths
    settings: Settings
    caller: Caller
    accounts: Accounts
    channel: Channel
    start_runs: Callable[[Callable[[], bool]], Runs]

    @property
    def runs(self) -> Runs:
        """Runs that end with the user's part."""
        return self.start_runs(lambda: self.channel.cancelled)

    @property
    def unattended_runs(self) -> Runs:
        """Runs that go on without the user's part."""
        return self.start_runs(lambda: False)

    @property
    def queue(self) -> Queue:
        """The manager's queue."""
        return Queue(self.settings.queue)

    @contextmanager
    def slot(self, kind: str = "slots", *, unattended: bool = False) -> Iterator[None]:
        """Hold a slot for a run; one that is ``unattended`` waits for it without the user's part."""
        slots = Slots(self.paths.runtime / kind, self.settings.runs_per_user, self.settings.runs)
        wait = time.sleep if unattended else self.channel.wait
        with slots.hold(self.caller.uid, wait, lambda text: self.channel.event("waiting", text=text)):
            yield

    def held(self) -> dict[str, Any]:
        """Return the variables of a run that may start what waits: it starts none that may not start any more."""
        return judge_queue(self.paths, self.settings, self.accounts).variables

    def options(self) -> Options:
        """Return the specification of a session's options."""
        return load_options(self.paths.specification)

    def policy(self, options: Options) -> Policy:
        """Return the policy that counts, and warn of one that is not valid."""
        policy, warning = load_policy(Path(self.settings.policy), self.paths.last_good_policy, options)
        if warning:
            self.warn(warning)
        return policy

    def warn(self, text: str) -> None:
        """Tell the user of something that is wrong."""
        self.channel.event("warning", text=text)

    def events(self) -> RunEvents:
        """Return events that tell the user which step runs."""
        return RunEvents(task=lambda task, host, state: self.channel.event("step", task=task, host=host, state=state))

    def records(self, *, history: bool = False, use: bool = False) -> list[dict[str, Any]]:
        """Return the records of all sessions, as the agents and the queue see them now; with ``use`` what they use."""
        trusted = {name: True for name, asked in (("session_history", history), ("session_list_use", use)) if asked}
        events = RunEvents()
        outcome = self.runs.run("list_sessions", trusted=trusted, reports=[LIST], events=events)
        outcome.require()
        for note in events.notes:
            self.warn(note)
        for host, reason in events.unreachable.items():
            self.warn(f"{host} does not answer, and its sessions are shown as they are known: {reason}")
        records = outcome.reports[LIST]
        if not isinstance(records, list):
            raise CommandError("list_sessions has written no list.")
        return [record for record in records if isinstance(record, dict)]

    def find(self, word: str, *, ended: bool = False) -> KnownSession:
        """Return a session of this manager's queue that the caller may act on: whose it is, no agent can say.

        Raises :class:`RefusedError`, with the same sentence for one that does not exist and one of somebody else.
        """
        session = find_session(self.queue.sessions(), word, self.caller, ended=ended)
        if session is None:
            raise not_found(word, self.caller)
        return session

    def find_anywhere(self, word: str, *, ended: bool = False) -> KnownSession:
        """Return a session as :meth:`find` does, for operators also one of which only agents know, by its id.

        They list such a session, read its logs and end it, and nothing else.
        """
        if self.caller.operator and ID.fullmatch(word) and self.queue.entry(word) is None:
            for record in self.records():
                known = KnownSession.from_record(record)
                if known and known.id == word:
                    return known
        return self.find(word, ended=ended)

    def require_owner(self, session: KnownSession) -> None:
        """Raise :class:`RefusedError` if the owner of a session is gone: nobody gets into it any more."""
        if not session.has_owner(self.accounts):
            raise RefusedError(
                f"the owner of {session.name} is gone ({session.user}): no tokens and keys are given any more. An"
                " operator can end it."
            )

    def record_of(self, session: KnownSession, field: str) -> dict[str, Any]:
        """Return the record of a session, by the queue if that has the field or it has ended, else by the agents."""
        entry = self.queue.entry(session.id)
        if entry and (not session.live or entry["record"].get(field)):
            return dict(entry["record"])
        record = next((record for record in self.records() if record.get("id") == session.id), None)
        if record is None:
            raise CommandError(f"{session.name} has just ended.")
        return record
