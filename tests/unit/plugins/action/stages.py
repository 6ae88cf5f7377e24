"""Runs single stages of a run, with what agents have answered before: each answer is a variable of its agent."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.model import Gateway
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import as_sentence
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.run_options import NetworkPools, RunOptions
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import spec_from_dict
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.new_session import NotPlannedError, plan_session
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.reconciling import reconcile_queue
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.site import ManagerRules, Site
from ansible_collections.backendai.cluster.plugins.plugin_utils._run.waiting_sessions import plan_waiting
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction
from ansible_collections.backendai.cluster.plugins.plugin_utils.run_request import RunRequest
from tests.unit.builders import POOLS
from tests.unit.rendering import OPTIONS_OF_RUN

#: The options of the run, by the names that tests use for them.
_OPTIONS = {
    "user": "user",
    "user_uid": "user_uid",
    "policy": "queue_policy",
    "max_skips": "queue_patience",
    "attempts": "claim_attempts",
    "record_path": "record_path",
    "history_days": "history_days",
    "agent_lost_after": "agent_lost_after",
}


def run_options(**changes: Any) -> RunOptions:
    """Return the options of a run."""
    return dataclasses.replace(RunOptions(**OPTIONS_OF_RUN), **changes)


def request_of(args: Mapping[str, Any]) -> RunRequest:
    """Return a request with the options that a test gives."""
    pools = dict(args.get("pools") or dataclasses.asdict(POOLS))
    pools["sites"] = [Gateway(**site) for site in pools.get("sites") or ()]
    options = {name: args[given] for given, name in _OPTIONS.items() if given in args}
    return RunRequest(
        run=run_options(**options),
        pools=NetworkPools(**pools),
        agents=list(args["agents"]),
        gateways=[],
        images=[],
        paths=[],
        keys_of=[],
        started_at=float(args.get("started_at", 0.0)),
        spec=spec_from_dict(args["spec"]) if "spec" in args else None,
        repair=args.get("repair", ""),
    )


def answers_in(agents: Iterable[str], variables: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return what agents have answered, from their variables; one that was not asked has no answer."""
    results = {name: variables["hostvars"].get(name, {}).get("__session_agent") for name in agents}
    return {name: result for name, result in results.items() if result is not None}


class Stage(ControlAction):
    """An action that runs one stage."""

    def site(self, variables: Mapping[str, Any]) -> Site:
        args = self._task.args
        rules = ManagerRules(
            frozenset(args.get("held") or ()), dict(args.get("limits") or {}), dict(args.get("groups") or {})
        )
        return Site(request_of(args), self.queue({}), variables["hostvars"], rules, self._task.check_mode)


class Plan(Stage):
    """Plans a session, or with ``queue`` those that wait."""

    def run(self, _tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        args, variables = self._task.args, task_vars or {}
        site, answers = self.site(variables), answers_in(args["agents"], variables)
        if args.get("queue"):
            passed = plan_waiting(site, answers)
            names = [start["plan"]["name"] for start in passed.starts]
            agents = list(dict.fromkeys(agent for start in passed.starts for agent in start["agents"]))
            specs = {name: passed.specs[start["id"]] for name, start in zip(names, passed.starts, strict=True)}
            return {"starts": passed.starts, "agents": agents, "specs": specs, "warnings": passed.warnings}
        try:
            planned = plan_session(site, answers, args.get("attempt", 1), args.get("refused") or [])
        except NotPlannedError as error:
            raise AnsibleActionFail(as_sentence(str(error))) from error
        entry = site.queue.entry(planned.id)
        result: dict[str, Any] = {
            "warnings": planned.warnings,
            "notes": planned.notes,
            "queued": bool(entry and entry.waits_for_start),
        }
        if planned.start is None:
            record, no_room = planned.record or {}, planned.no_room
            waiting: dict[str, Any] = {
                "plan": None,
                "id": planned.id,
                "agents": [],
                "public_keys": {},
                "starts": [],
                "record": record,
            }
            lacking = {name: getattr(no_room, name) for name in ("unplaced", "blocking_sessions")}
            released = planned.capacity_released
            return {
                **result,
                **waiting,
                "pending": record["pending"],
                "no_room": lacking,
                "capacity_released": released,
            }
        diff = {"before": "", "after": planned.description}
        return {**result, **planned.start, "starts": [planned.start], "diff": diff, "pending": None, "record": None}


class Reconcile(Stage):
    """Reconciles the queue; ``sent`` are the ids of ended sessions that gateways were told of."""

    def run(self, _tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        args, variables = self._task.args, task_vars or {}
        found = reconcile_queue(
            self.site(variables),
            answers_in(args["agents"], variables),
            args.get("ends") or {},
            abandoned=bool(args.get("abandoned")),
            all_routes=bool(args.get("all_routes")),
            sent=args.get("sent") or (),
        )
        self.show(found.lines)
        return {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
