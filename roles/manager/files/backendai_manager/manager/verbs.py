# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the manager's part does for each verb."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import CancelledError, CommandError
from ..protocol import Request, Result
from .context import RequestContext
from .create import ACCESS, RECORD, create
from .following import follow_logs, show_logs
from .limits import AGENTS, limits
from .ownership import LIVE, KnownSession, visible_records
from .queue import CREATING, PENDING

LOGS, TOKEN = "session_logs_path", "session_token_path"
NO_GATEWAY = "gateway_group: "
"""How the playbook's sentence begins if there is no gateway in the inventory."""

UNASKED_SECONDS = 3600
"""How old a session is at most that ends without a question to who may answer one."""

ADDRESS_SECONDS = 60
"""How long a token lives that is only asked for to learn of addresses."""


def list_sessions(context: RequestContext, request: Request) -> Result:
    """Return the records of the caller's sessions, or of all."""
    age = None
    if request.fields["cached"]:
        try:
            path = context.paths.seen_sessions
            records, age = json.loads(path.read_bytes()), max(0.0, time.time() - path.stat().st_mtime)
        except (OSError, ValueError):
            raise CommandError("there is no list yet: the timer of the manager writes it.") from None
    else:
        with context.slot():
            records = context.records(history=request.fields["history"])
    seen = visible_records(records, context.caller, everybody=request.fields["all"])
    return Result("done", "", {"sessions": [_with_owner(context, record) for record in seen], "age": age})


def _with_owner(context: RequestContext, record: dict[str, Any]) -> dict[str, Any]:
    """Return a record for operators, who see whether the owner is gone; for users, as it is."""
    known = KnownSession.from_record(record)
    if known is None or not context.caller.operator or not record.get("recorded"):
        return record
    return {**record, "owner_gone": not known.has_owner(context.accounts)}


def show(context: RequestContext, request: Request) -> Result:
    """Return the record of a session that lives or has ended."""
    with context.slot():
        session = context.find_anywhere(request.fields["session"], ended=True)
        records = context.records(history=not session.live, use=session.live)
    record = next((record for record in records if record.get("id") == session.id), None)
    if record is None:
        entry = context.queue.entry(session.id)
        record = entry["record"] if entry else None
    if record is None:
        raise CommandError(f"{session.name} has just ended.")
    return Result("done", "", {"record": _with_owner(context, record)})


def logs(context: RequestContext, request: Request) -> Result:
    """Return the logs of a session, or its lines as events until it ends."""
    fields = request.fields
    # Those who follow run no playbook, and are counted apart: to find the session may need one.
    with context.slot():
        session = context.find_anywhere(fields["session"], ended=True)
        follows = fields["follow"] and session.live
        if follows:
            record = context.record_of(session, "kernels")
        else:
            given = {"session_id": session.id, "session_logs_lines": fields["lines"], "session_kernel": fields["host"]}
            outcome = context.runs.run("session_logs", given, reports=[LOGS])
    if follows:
        with context.slot("followers"):
            return follow_logs(context, session, record, fields["host"], fields["lines"])
    report = outcome.reports[LOGS]
    if report is None:
        outcome.require()
    # What could be read is shown, although an agent does not answer.
    status = "done" if outcome.done else "failed"
    if fields["follow"]:
        show_logs(context.channel, report)
        return Result(status, outcome.reason)
    return Result(status, outcome.reason, {"logs": report})


def access(context: RequestContext, request: Request) -> Result:
    """Return how a session is reached over SSH."""
    with context.slot():
        session = context.find(request.fields["session"])
        context.require_owner(session)
        record = context.record_of(session, "host_keys")
        known = {name: record.get(name) for name in ("id", "name", "status", "host_keys")}
        known["own"] = session.belongs_to(context.caller)
        if known["status"] not in ("RUNNING", "DEGRADED"):
            later = "; it can be entered once it runs" if known["status"] in LIVE else ""
            return Result("failed", f"{known['name']} is {known['status']}{later}.", {"record": known})
        links = _token(context, session.id, ADDRESS_SECONDS)["links"]
    return Result("done", "", {"record": {**known, "ssh": links.get("ssh")}})


def _token(context: RequestContext, session_id: str, seconds: int) -> dict[str, Any]:
    given = {"session_id": session_id, "session_token_ttl": seconds}
    outcome = context.runs.run("session_token", given, reports=[TOKEN])
    if outcome.reason.startswith(NO_GATEWAY):
        raise CommandError(
            "this manager has no gateway, so sessions cannot be entered over SSH or with a browser: ask an operator."
        )
    outcome.require()
    answer = outcome.reports[TOKEN]
    if not isinstance(answer, dict) or not isinstance(answer.get("links"), dict):
        raise CommandError("the gateway has sent no links.")
    return answer


def token(context: RequestContext, request: Request) -> Result:
    """Return a token for the apps of a session, and their links."""
    with context.slot():
        session = context.find(request.fields["session"])
        context.require_owner(session)
        state = (context.queue.entry(session.id) or {}).get("state")
        if state in (PENDING, CREATING):
            raise CommandError(f"{session.name} is {state}; its apps can be opened once it runs.")
        return Result("done", "", _token(context, session.id, request.fields["seconds"]))


def end(context: RequestContext, request: Request) -> Result:
    """End a session."""
    with context.slot():
        session = context.find_anywhere(request.fields["session"])
        if not request.fields["confirmed"] and time.time() - session.since > UNASKED_SECONDS:
            return Result("pending", "", {"since": session.since, "id": session.id})
        given = {"session_id": session.id, "session_force": request.fields["force"]}
        try:
            outcome = context.runs.run("terminate_session", given, context.held(), [RECORD], context.events())
        except CancelledError:
            raise CancelledError(
                f"cancelled; what has begun of the end of {session.name} goes on with the next run of the timer."
            ) from None
    outcome.require()
    record = outcome.reports[RECORD] or {}
    return Result("done", f"{session.name} is {record.get('status', 'TERMINATED')}.", {"record": record})


def repair(context: RequestContext, request: Request) -> Result:
    """Repair a session, which stays its owner's."""
    with context.slot():
        session = context.find(request.fields["session"])
        context.require_owner(session)
        trusted = {"session_user": session.user, "session_user_uid": session.uid, **context.held()}
        try:
            given = {"session_id": session.id, "session_fresh_home": request.fields["fresh_home"]}
            outcome = context.runs.run("repair_session", given, trusted, [RECORD, ACCESS], context.events())
        except CancelledError:
            raise CancelledError(f"cancelled; repair {session.name} again to complete it.") from None
    outcome.require()
    record = outcome.reports[RECORD] or {}
    return Result("done", f"{session.name} is {record.get('status')}.", {"record": record})


def agents(context: RequestContext, _request: Request) -> Result:
    """Return what is free on the agents."""
    with context.slot():
        outcome = context.runs.run("list_agents", reports=[AGENTS])
    outcome.require()
    return Result("done", "", {"agents": outcome.reports[AGENTS]})


VERBS: Mapping[str, Callable[[RequestContext, Request], Result]] = {
    "create": create,
    "list": list_sessions,
    "show": show,
    "logs": logs,
    "access": access,
    "token": token,
    "end": end,
    "repair": repair,
    "agents": agents,
    "limits": limits,
}
