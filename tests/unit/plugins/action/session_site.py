"""A site without hosts for the actions that change sessions: agents that hold parts of sessions, and gateways."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible.plugins import action

from ansible_collections.backendai.cluster.plugins.action import queue as queue_action
from ansible_collections.backendai.cluster.plugins.action import session as session_action
from ansible_collections.backendai.cluster.plugins.module_utils._model.plan import SessionPlan
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_calls import Answer, Tell
from ansible_collections.backendai.cluster.plugins.plugin_utils.agents_action import AgentsAction
from tests.unit.builders import GIB, agent_facts, held_session, result
from tests.unit.plugins.action.asked_hosts import Asked, AskedHosts, Variables
from tests.unit.plugins.action.conftest import Run
from tests.unit.rendering import Rendering

Fault = Callable[[Asked], Answer | None]
"""Returns what a host replies instead, or raises what ends the run; ``None`` for what it would reply."""


class Agent:
    """An agent that holds parts of sessions, by session id: its plan, and whether it is committed.

    ``stopped`` are the status and exit code of containers that do not run, by hostname; ``lines`` are those of a log.
    ``nonces`` are those of the runs that claimed parts, and ``begun`` how often it began the commands of sessions. It
    may have ``gpus``.
    """

    def __init__(self, name: str, cpu: int) -> None:
        self.name, self.cpu = name, cpu
        self.parts: dict[str, tuple[SessionPlan, bool]] = {}
        self.lines: list[str] = []
        self.gpus = 0
        self.stopped: dict[str, tuple[str, int | None]] = {}
        self.nonces: dict[str, str] = {}
        self.begun: Counter[str] = Counter()

    def reply(self, asked: Asked) -> Answer:
        """Return the reply to a request."""
        return {
            "survey": self._survey,
            "start": self._start,
            "remove": self._remove,
            "reap": self._reap,
            "pull": self._pull,
            "wait": lambda _options: {"ended": True, "exit_code": 0},
            "logs": self._logs,
        }[asked.phase](asked.options)

    def _survey(self, _options: Mapping[str, Any]) -> dict[str, Any]:
        kernels = [kernel for plan, _committed in self.parts.values() for kernel in plan.kernels_on(self.name)]
        capacity = {"cpu": self.cpu, "mem": 64 * GIB, **({"cuda.device": self.gpus} if self.gpus else {})}
        allocated = {slot: sum(kernel.resources.get(slot, 0) for kernel in kernels) for slot in capacity}
        held = [
            held_session(plan, self.name, self.stopped, committed=committed, begun=plan.id in self.begun)
            for plan, committed in self.parts.values()
        ]
        taken: dict[str, Any] = {"sessions": held, "allocated": allocated, "containers": len(kernels)}
        return result(agent_facts(self.name, self.cpu, capacity=capacity, **taken))

    def _start(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {"changed": True, "sessions": {entry["id"]: self._steps(entry) for entry in options["sessions"]}}

    def _steps(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        reply: dict[str, Any] = {"steps": list(entry["steps"])}
        if "claim" in entry["steps"]:
            plan = SessionPlan.from_dict(entry["plan"])
            self.parts[entry["id"]] = (plan, False)
            self.nonces[entry["id"]] = entry["nonce"]
            names = [kernel.hostname for kernel in plan.kernels_on(self.name)]
            reply["public_keys"] = {name: {"user": f"USER-{name}", "host": f"HOST-{name}"} for name in names}
        plan = self.parts[entry["id"]][0]
        if "commit" in entry["steps"]:
            self.parts[entry["id"]] = (plan, True)
            state = {"status": "running", "image_digest": "sha256:1"}
            reply["containers"] = {kernel.hostname: state for kernel in plan.kernels_on(self.name)}
        if "command" in entry["steps"]:
            self.begun[entry["id"]] += 1
        return reply

    def _remove(self, options: Mapping[str, Any]) -> dict[str, Any]:
        removed = [
            entry["id"] for entry in options["sessions"] if entry["nonce"] in (None, self.nonces.get(entry["id"]))
        ]
        changed = len([session_id for session_id in removed if self.parts.pop(session_id, None)]) > 0
        return {"changed": changed, "sessions": {entry["id"]: {} for entry in options["sessions"]}}

    def _reap(self, options: Mapping[str, Any]) -> dict[str, Any]:
        for session_id in options["end"]:
            self.parts.pop(session_id, None)
        return {"changed": bool(options["end"]), "failures": {}, "ends": {name: {} for name in options["end"]}}

    def _pull(self, options: Mapping[str, Any]) -> dict[str, Any]:
        name = options["name"]
        image = {"id": "sha256:1", "digest": "sha256:1", "reference": ""}
        return {"changed": bool(name), "images": {name: image} if name else {}, "under_way": []}

    def _logs(self, options: Mapping[str, Any]) -> dict[str, Any]:
        logs: dict[str, Any] = {"main1": {"log": json.dumps(self.lines), "apps": {}, "error": None}}
        states = {"main1": {"status": "exited", "exit_code": 3, "image_digest": None}}
        part = {"id": options["session_id"], "batch": True, "containers": states, "logs": logs}
        return {"parts": [part], "error": None}


def gateway_reply(asked: Asked) -> Answer:
    """Return what a gateway replies to an update: the routes as links, and that the others are gone."""
    update = asked.options
    links = [
        {"id": route["id"], "name": route["name"], "ssh": {"host": asked.host, "port": 31001}, "apps": []}
        for route in update["routes"]
    ]
    return {"changed": True, "links": links, "unrouted": [*update["ended"], *(one["id"] for one in update["vacated"])]}


class SessionSite:
    """Agents of so many cores, and gateways. ``fault`` may change what a host replies, or end the run."""

    def __init__(self, run: Run, folder: Path, cores: Sequence[int] = (8, 8), gateways: Sequence[str] = ()) -> None:
        self._run, self.folder, self.gateways = run, folder, list(gateways)
        self.agents = {f"agent{number}": Agent(f"agent{number}", cpu) for number, cpu in enumerate(cores, 1)}
        self.fault: Fault = lambda _asked: None
        self.hidden: set[str] = set()
        self.asked: list[Asked] = []
        self.shown: list[str] = []
        self.progress: list[str] = []
        self.warned: list[str] = []
        self.given_up = 0

    @property
    def record(self) -> Any:
        """The record that the run has written; ``None`` if it has written none."""
        path = self.folder / "record.json"
        return json.loads(path.read_text()) if path.exists() else None

    def phases(self, *left_out: str) -> list[tuple[str, str]]:
        """The requests: phase and host; of a start the first step."""
        named = [
            (asked.options["sessions"][0]["steps"][0] if asked.phase == "start" else asked.phase, asked.host)
            for asked in self.asked
        ]
        return [each for each in named if each[0] not in left_out]

    def reply(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        instead = self.fault(asked)
        if instead is not None:
            return instead
        return gateway_reply(asked) if asked.host in self.gateways else self.agents[asked.host].reply(asked)

    def session(
        self, *, check_mode: bool = False, variables: Mapping[str, Any] | None = None, **args: Any
    ) -> dict[str, Any]:
        """Run the action ``session`` with these options."""
        paths = {"record_path": str(self.folder / "record.json")}
        return self._act(AskingSession, {**paths, **args}, variables or {}, check_mode)

    def queue(
        self, *, check_mode: bool = False, variables: Mapping[str, Any] | None = None, **args: Any
    ) -> dict[str, Any]:
        """Run the action ``queue`` with these options."""
        return self._act(AskingQueue, args, variables or {}, check_mode)

    def _act(
        self, of: type[AgentsAction], args: dict[str, Any], variables: Mapping[str, Any], check_mode: bool
    ) -> dict[str, Any]:
        names = [*self.agents, *self.gateways]
        hostvars = Variables({name: {"ansible_host": f"192.0.2.{number}"} for number, name in enumerate(names, 1)})
        _Asking.site, _Asking.hostvars = self, hostvars
        known = {"hostvars": hostvars, "groups": {"gateways": self.gateways}, **variables}
        return self._run(of, args, known, check_mode=check_mode)


class _Asking(Rendering, AgentsAction):
    """An action that asks the hosts of a site."""

    site: SessionSite
    hostvars: Variables

    def agents(self, _given: Any, _task_vars: Mapping[str, Any]) -> list[str]:
        return list(self.site.agents)

    def within_limit(self, agents: Collection[str], _task_vars: Mapping[str, Any]) -> list[str]:
        return [name for name in agents if name not in self.site.hidden]

    @contextlib.contextmanager
    def calls_of(
        self,
        kinds: Sequence[Any],
        _task_vars: Mapping[str, Any],
        tell: Tell = lambda _step, _host, _answer: None,
        *,
        look: bool = False,
    ) -> Iterator[list[Any]]:
        assert not look
        asking = [AskedHosts(self.hostvars, self.site.reply, tell) for _kind in kinds]
        try:
            yield asking
        finally:
            self.site.given_up += sum(each.given_up for each in asking)


class AskingSession(_Asking, session_action.ActionModule):
    """The action ``session``."""


class AskingQueue(_Asking, queue_action.ActionModule):
    """The action ``queue``."""


def note_shown(site: SessionSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Note what is shown, as a result and as progress, and the warnings."""

    def show(text: str, *_how: Any, stderr: bool = False, **_more: Any) -> None:
        (site.progress if stderr else site.shown).extend(text.splitlines())

    monkeypatch.setattr(action.display, "display", show)
    monkeypatch.setattr(action.display, "warning", lambda text, *_how, **_more: site.warned.append(text))
