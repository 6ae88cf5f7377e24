"""A manager without Ansible and sudo: its folders, its accounts, and runs that answer from a table."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from backendai_manager.errors import CancelledError, CommandError
from backendai_manager.manager.agents import Agents, Ask
from backendai_manager.manager.channel import WATCHER, Channel
from backendai_manager.manager.identity import Account, Accounts
from backendai_manager.manager.run_events import RunEvents
from backendai_manager.manager.runs import Outcome, Runs
from backendai_manager.options import Options, load_options
from backendai_manager.paths import Paths
from backendai_manager.policy import Policy
from backendai_manager.protocol import Result, parse_answer
from backendai_manager.service import serve
from tests.unit.builders import REPOSITORY

ALICE, BOB, CAROL, MALLORY = (
    Account(name, uid, 100) for name, uid in (("alice", 1001), ("bob", 1002), ("carol", 1003), ("mallory", 1004))
)
NOBODYS = 1999999999
"""A uid and gid that no account of this machine has."""

IDS = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(10)]
OPTIONS: Options = load_options(REPOSITORY / "roles/session/meta/argument_specs.yml")


LIMITS = {"__session_limits": Policy(()).limits, "__session_groups": {"allowed": "own", "closed": ["operators"]}}
"""The variables of runs that may start sessions, with a policy that says nothing about limits and groups."""


class KnownAccounts(Accounts):
    """Accounts of a table; alice and bob are users, carol is an operator, mallory neither."""

    def __init__(self, *accounts: Account) -> None:
        self.accounts = list(accounts or (ALICE, BOB, CAROL, MALLORY))
        self.groups = {"users": ["alice", "bob"], "operators": ["carol"]}

    def by_uid(self, uid: int) -> Account | None:
        return next((account for account in self.accounts if account.uid == uid), None)

    def by_name(self, name: str) -> Account | None:
        return next((account for account in self.accounts if account.name == name), None)

    def in_group(self, account: Account, group: str) -> bool:
        return account.name in self.groups.get(group, [])


@dataclasses.dataclass(frozen=True)
class Run:
    """A playbook that was run."""

    playbook: str
    request: Mapping[str, Any] | None
    trusted: Mapping[str, Any]
    check: bool = False


Answers = Sequence[dict[str, Any] | CommandError] | Callable[[Mapping[str, Any]], dict[str, Any]]


class FakeRuns(Runs):
    """Runs that answer with the reports of a table: a mapping, or a function of the run."""

    def __init__(self) -> None:
        self.made: list[Run] = []
        self.reports: dict[str, Any] = {"list_sessions": {"session_list_path": []}}
        self.failures: dict[str, Outcome] = {}
        self.during: dict[str, Callable[[], None]] = {}
        self.events: list[Mapping[str, Any]] = []
        self.cancelled: Callable[[], bool] = lambda: False
        self.agent_answers: dict[str, Answers] = {}
        self.asked: list[tuple[str, str, Mapping[str, Any]]] = []

    def run(
        self,
        playbook: str,
        request: Mapping[str, Any] | None = None,
        trusted: Mapping[str, Any] | None = None,
        reports: Sequence[str] = (),
        events: RunEvents | None = None,
        *,
        check: bool = False,
    ) -> Outcome:
        self.made.append(Run(playbook, request, trusted or {}, check))
        self.during.get(playbook, lambda: None)()
        for event in self.events:
            (events or RunEvents()).take(event)
        if self.cancelled():
            raise CancelledError("cancelled.")
        written = self.reports.get(playbook, {})
        failure = self.failures.get(playbook)
        answers = {name: written.get(name) for name in reports}
        return dataclasses.replace(failure, reports=answers) if failure else Outcome(True, "", answers)

    @contextmanager
    def agents(self) -> Iterator[Agents]:
        yield FakeAgents(self)

    def playbooks(self) -> list[str]:
        """Return the playbooks that were run."""
        return [run.playbook for run in self.made]


class FakeAgents(Agents):
    """Agents that answer from a table, by name: with one answer after another, or with a function of the options."""

    def __init__(self, runs: FakeRuns) -> None:
        self._runs = runs

    def ask(self, name: str) -> Ask:
        if name not in self._runs.agent_answers:
            raise CommandError("it is not in the manager's inventory.")
        answers = self._runs.agent_answers[name]
        waiting = None if callable(answers) else iter(answers)

        def ask(phase: str, options: Mapping[str, Any], _seconds: int) -> dict[str, Any]:
            self._runs.asked.append((name, phase, options))
            answer = next(waiting) if waiting else answers(options) if callable(answers) else None
            if isinstance(answer, CommandError):
                raise answer
            assert answer is not None
            return answer

        return ask


class ManagerHost:
    """The folders of a manager, and its service part in this process."""

    def __init__(self, folder: Path) -> None:
        self.paths = Paths(folder / "programs", folder / "etc", folder / "home", folder / "run")
        for path in (self.paths.programs, self.paths.settings, self.paths.home, self.paths.runtime):
            path.mkdir(parents=True)
        (self.paths.programs / "collections").symlink_to(REPOSITORY / ".venv/collections")
        self.queue = self.paths.home / "queue"
        self.queue.mkdir()
        self.policy = self.paths.settings / "policy.yml"
        self.policy.write_text(f"images: ['lab/*']\nuid: {NOBODYS}\ngid: {NOBODYS}\n")
        self.settings: dict[str, Any] = {
            "version": 1,
            "inventory": str(self.paths.settings / "inventory.yml"),
            "policy": str(self.policy),
            "queue": str(self.queue),
            "users_group": "users",
            "operators_group": "operators",
            "runs_per_user": 4,
            "runs": 32,
            "orphan_after": 0,
        }
        self.write_settings()
        self.accounts = KnownAccounts()
        self.runs = FakeRuns()
        #: Ends the user's part of the request that is being answered.
        self.cancel: Callable[[], None] = lambda: None
        self.events: list[Mapping[str, Any]] = []

    def write_settings(self, **changed: Any) -> None:
        self.settings |= changed
        self.paths.manager_settings.write_text(json.dumps(self.settings))

    def keep(self, number: int, account: Account, name: str = "train", state: str = "RUNNING", **fields: Any) -> str:
        """Put a session into the queue, and return its id."""
        session_id = IDS[number]
        entry = {
            "id": session_id,
            "name": name,
            "state": state,
            "user": account.name,
            "record": record(number, account, name, "TERMINATED" if state == "TERMINATED" else state),
            "spec": None,
            "limited": True,
            "enqueued_at": float(number),
            **fields,
        }
        (self.queue / f"{session_id}.json").write_text(json.dumps(entry))
        return session_id

    def ask(self, account: Account | None, verb: str, **fields: Any) -> Result:
        """Return the result of a request of an account."""
        return self.send(account, json.dumps({"verb": verb, **fields}).encode() + b"\n")

    def send(self, account: Account | None, line: bytes) -> Result:
        """Return the result of a line, as sudo would have let it through for an account."""
        before = set(threading.enumerate())
        source, request = os.pipe()
        answers, target = os.pipe()

        def start(_paths: object, _settings: object, _uid: int, cancelled: Callable[[], bool]) -> FakeRuns:
            self.runs.cancelled = cancelled
            return self.runs

        with open(request, "wb", buffering=0) as users_part:
            self.cancel = users_part.close
            users_part.write(line)
            try:
                serve(self.paths, Channel(source, target), self.accounts, str(account.uid) if account else None, start)
            finally:
                os.close(target)
        # It would read from whatever gets the number of this pipe next.
        for thread in set(threading.enumerate()) - before:
            if thread.name == WATCHER:
                thread.join(10)
        with open(answers, "rb") as stream:
            *events, result = [parse_answer(answer) for answer in stream]
        os.close(source)
        self.events += [event for event in events if not isinstance(event, Result)]
        assert isinstance(result, Result)
        return result


def record(
    number: int, account: Account, name: str = "train", status: str = "RUNNING", **fields: Any
) -> dict[str, Any]:
    """Return the record of a session."""
    return {
        "id": IDS[number],
        "name": name,
        "status": status,
        "user": account.name,
        "uid": account.uid,
        "cluster_size": 1,
        "created_at": float(number),
        "kernels": [{"hostname": "main1", "agent": "agent1", "address": "10.128.0.2", "status": "running"}],
        "apps": [{"name": "jupyter", "port": 8888}],
        "error": None,
        "host_keys": {"main1": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA"},
        "recorded": True,
        **fields,
    }


def stranger(number: int, **fields: Any) -> dict[str, Any]:
    """Return the record of a session of which only agents know."""
    return record(number, ALICE, user=None, uid=None, host_keys={}, apps=[], recorded=False, **fields)
