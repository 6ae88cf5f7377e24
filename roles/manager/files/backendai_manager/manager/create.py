# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Creates a session: what a user gives, bounded by the policy, becomes a request file for the playbook."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import CancelledError, CommandError, RefusedError
from ..policy import Policy
from ..protocol import Request, Result
from .context import RequestContext
from .ownership import KnownSession
from .queue import PENDING
from .queue_check import DEFAULTS, GROUPS, LIMITS, STARTS_NONE
from .request import BY_HOST_NAME, build_request
from .runs import Outcome

RECORD, ACCESS = "session_record_path", "session_access_path"
POLL_SECONDS = 2.0


def create(context: RequestContext, request: Request) -> Result:
    """Create a session of the caller, or repair it if it exists."""
    options = context.options()
    policy = context.policy(options)
    built = build_request(request.fields["options"], policy, options, context.caller)
    name = str(built.get("session_name", ""))
    with context.slot():
        before = _check_name(context, name)
        # At the end of a run that waits for its session, what waits now may be something else.
        none = {STARTS_NONE: True} if built.get("session_wait") else {}
        defaults = default_rules(policy, built, wait_for_hosts=request.fields["wait_for_hosts"])
        trusted = {**trusted_variables(context, policy), **context.held(), **none, DEFAULTS: defaults}
        events = context.events()
        if request.fields["dry_run"]:
            outcome = context.runs.run("create_session", built, trusted, events=events, check=True)
            _say(context, events.notes)
            outcome.require()
            return Result("done", f"{name} may be created; nothing has been changed.")
        try:
            outcome = context.runs.run("create_session", built, trusted, [RECORD, ACCESS], events)
        except CancelledError:
            begun = [session.id for session in _named(context, name) if session.belongs_to(context.caller)]
            raise CancelledError(_undo(context, name, {*begun} - before, before)) from None
        _say(context, events.notes)
    result = _result(context, name, outcome)
    record = result.data.get("record") or {}
    if record.get("status") == PENDING and request.fields["wait"]:
        return _wait(context, record, request.fields["wait"], before)
    return result


def trusted_variables(context: RequestContext, policy: Policy) -> dict[str, Any]:
    """Return the variables of a user's session that no user gives."""
    return {
        "session_user": context.caller.name,
        "session_user_uid": context.caller.uid,
        "session_no_new_privileges": True,
        LIMITS: policy.limits,
        GROUPS: policy.group_rules(context.settings.operators_group),
        **({"session_max_lifetime_limit": policy.max_lifetime} if policy.max_lifetime else {}),
    }


def default_rules(policy: Policy, request: Mapping[str, Any], *, wait_for_hosts: bool) -> dict[str, Any]:
    """Return how it is decided what a user's request leaves open, and whether it may wait for what there is not yet."""
    apps = policy.default_apps if len(request.get("session_apps", ())) < policy.max_apps else ()
    entries = [{"name": app} if policy.links_by_path else {"name": app, "path": BY_HOST_NAME} for app in apps]
    return {"per_gpu": dict(policy.per_gpu), "apps": entries, "refuses_never": not wait_for_hosts}


def _say(context: RequestContext, texts: Iterable[str]) -> None:
    for text in texts:
        context.channel.event("advice", text=text)


def _check_name(context: RequestContext, name: str) -> set[str]:
    """Return the ids of the live sessions that have this name. Refuse one that somebody else's has.

    The playbook refuses it, too, and for sessions that another node has started.
    """
    named = _named(context, name)
    if any(not session.belongs_to(context.caller) for session in named):
        raise _taken(name)
    return {session.id for session in named}


def _named(context: RequestContext, name: str) -> list[KnownSession]:
    return [session for session in context.queue.sessions() if session.name == name and session.live]


def _taken(name: str) -> RefusedError:
    return RefusedError(f"name: {name!r} is taken by another user's session; choose another name.")


def _result(context: RequestContext, name: str, outcome: Outcome) -> Result:
    """Return the result of a run. What it says of somebody else's session is not told."""
    record = outcome.reports[RECORD]
    known = KnownSession.from_record(record) if isinstance(record, dict) else None
    if known and known.user and not known.belongs_to(context.caller):
        raise _taken(name)
    outcome.require()
    if not isinstance(record, dict):
        raise CommandError("create_session has written no record.")
    data = {"record": record, "access": outcome.reports[ACCESS] or []}
    if record.get("status") == PENDING:
        return Result("done", f"{name} waits: {_reason(record)}", data)
    if record.get("status") == "ERROR":
        raise CommandError(str(record.get("error") or f"{name} could not be created."))
    return Result("done", f"{name} is {record.get('status')}.", data)


def _reason(record: Mapping[str, Any]) -> str:
    pending = record.get("pending") or {}
    return str(pending.get("reason") or "it starts when there is room.")


def _wait(context: RequestContext, record: Mapping[str, Any], seconds: int, before: set[str]) -> Result:
    """Wait until a session has left the queue, without a slot: another run starts it. It ends if that is cancelled."""
    name, session_id = str(record["name"]), str(record["id"])
    try:
        return _wait_for_start(context, record, name, session_id, seconds)
    except CancelledError:
        with context.slot(unattended=True):
            begun = [session.id for session in _named(context, name) if session.id == session_id]
            raise CancelledError(_undo(context, name, {*begun} - before, before)) from None


def _wait_for_start(
    context: RequestContext, record: Mapping[str, Any], name: str, session_id: str, seconds: int
) -> Result:
    context.channel.event("waiting", text=f"{name} waits: {_reason(record)}")
    deadline = time.monotonic() + seconds
    while True:
        entry = context.queue.entry(session_id) or {}
        state, latest = entry.get("state"), entry.get("record") or record
        if state == "RUNNING":
            return Result("done", f"{name} is RUNNING.", {"record": latest, "access": []})
        if state not in ("PENDING", "CREATING"):
            why = latest.get("error") or latest.get("reason") or "it has ended"
            raise CommandError(f"{name} has not started: {why}")
        if time.monotonic() >= deadline:
            return Result("pending", f"{name} still waits: {_reason(latest)}", {"record": latest, "access": []})
        context.channel.wait(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))


def _undo(context: RequestContext, name: str, begun: set[str], before: set[str]) -> str:
    """End what a cancelled request has begun, and return a sentence about it. The user's part need not wait for it."""
    for session_id in begun:
        context.channel.event("waiting", text=f"Cancelled: {name} is being removed.")
        given = {"session_id": session_id, "session_force": True}
        outcome = context.unattended_runs.run("terminate_session", given, context.held())
        if not outcome.done:
            return f"cancelled; {name} could not be removed: {outcome.reason} Remove it with backendai end {name}."
    if before:
        return f"cancelled; the session that existed is as it was. End it with backendai end {name}."
    return "cancelled; nothing is left."
