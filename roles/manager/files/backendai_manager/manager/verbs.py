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
from .create import ACCESS, RECORD, create
from .desk import Desk
from .ownership import Known, visible_records
from .run_events import RunEvents

LOGS, TOKEN, AGENTS = "session_logs_path", "session_token_path", "agent_list_path"
NO_GATEWAY = "gateway_group: "
"""How the playbook's sentence begins if there is no gateway in the inventory."""

ADDRESS_SECONDS = 60
"""How long a token lives that is only asked for to learn of addresses."""


def list_sessions(desk: Desk, request: Request) -> Result:
    """Return the records of the caller's sessions, or of all."""
    age = None
    if request.fields["cached"]:
        try:
            path = desk.places.seen_sessions
            records, age = json.loads(path.read_bytes()), max(0.0, time.time() - path.stat().st_mtime)
        except (OSError, ValueError):
            raise CommandError("there is no list yet: the timer of the manager writes it.") from None
    else:
        with desk.slot():
            records = desk.records(history=request.fields["history"])
    seen = visible_records(records, desk.caller, everybody=request.fields["all"])
    return Result("done", "", {"sessions": [_with_owner(desk, record) for record in seen], "age": age})


def _with_owner(desk: Desk, record: dict[str, Any]) -> dict[str, Any]:
    """Return a record for operators, who see whether the owner is gone; for users, as it is."""
    known = Known.from_record(record)
    if known is None or not desk.caller.operator:
        return record
    return {**record, "owner_gone": not known.has_owner(desk.accounts)}


def show(desk: Desk, request: Request) -> Result:
    """Return the record of a session that lives or has ended."""
    with desk.slot():
        session = desk.find(request.fields["session"], ended=True)
        records = desk.records(history=not session.live)
    record = next((record for record in records if record.get("id") == session.id), None)
    if record is None:
        entry = desk.queue.entry(session.id)
        record = entry["record"] if entry else None
    if record is None:
        raise CommandError(f"{session.name} has just ended.")
    return Result("done", "", {"record": _with_owner(desk, record)})


def logs(desk: Desk, request: Request) -> Result:
    """Return the logs of a session, or its lines as events until it ends."""
    fields = request.fields
    with desk.slot("followers" if fields["follow"] else "slots"):
        session = desk.find(fields["session"], ended=True)
        given = {"session_id": session.id, "session_logs_lines": fields["lines"], "session_kernel": fields["host"]}
        if fields["follow"]:
            events = RunEvents(line=lambda line: desk.channel.event("line", text=line))
            desk.runs.run("session_logs", given, {"session_logs_follow": True}, events=events).require()
            return Result("done")
        outcome = desk.runs.run("session_logs", given, reports=[LOGS])
    if outcome.reports[LOGS] is None:
        outcome.require()
    report = outcome.reports[LOGS]
    # What could be read is shown, although an agent does not answer.
    return Result("done" if outcome.done else "failed", outcome.reason, {"logs": report})


def access(desk: Desk, request: Request) -> Result:
    """Return how one session, or each of the caller's live ones, is reached over SSH."""
    word = request.fields["session"]
    with desk.slot():
        if word:
            session = desk.find(word)
            desk.require_owner(session)
            found = [desk.record_of(session, "host_keys")]
        else:
            found = [
                record
                for record in desk.records()
                if (known := Known.from_record(record)) and known.live and known.belongs_to(desk.caller)
            ]
        running = [record for record in found if record.get("status") in ("RUNNING", "DEGRADED")]
        if word and not running:
            raise CommandError(f"{found[0].get('name')} is {found[0].get('status')}; it can be entered once it runs.")
        return Result("done", "", {"sessions": [_address(desk, record) for record in running]})


def _address(desk: Desk, record: Mapping[str, Any]) -> dict[str, Any]:
    links = _token(desk, str(record["id"]), ADDRESS_SECONDS)["links"]
    return {
        "id": record["id"],
        "name": record["name"],
        "ssh": links.get("ssh"),
        "host_keys": record.get("host_keys") or {},
    }


def _token(desk: Desk, session_id: str, seconds: int) -> dict[str, Any]:
    given = {"session_id": session_id, "session_token_ttl": seconds}
    outcome = desk.runs.run("session_token", given, reports=[TOKEN])
    if outcome.reason.startswith(NO_GATEWAY):
        raise CommandError(
            "this manager has no gateway, so sessions cannot be entered over SSH or with a browser: ask an operator."
        )
    outcome.require()
    answer = outcome.reports[TOKEN]
    if not isinstance(answer, dict) or not isinstance(answer.get("links"), dict):
        raise CommandError("the gateway has sent no links.")
    return answer


def token(desk: Desk, request: Request) -> Result:
    """Return a token for the apps of a session, and their links."""
    with desk.slot():
        session = desk.find(request.fields["session"])
        desk.require_owner(session)
        return Result("done", "", _token(desk, session.id, request.fields["seconds"]))


def end(desk: Desk, request: Request) -> Result:
    """End a session."""
    with desk.slot():
        session = desk.find(request.fields["session"])
        given = {"session_id": session.id, "session_force": request.fields["force"]}
        try:
            outcome = desk.runs.run("terminate_session", given, reports=[RECORD], events=desk.events())
        except CancelledError:
            raise CancelledError(
                f"cancelled; what has begun of the end of {session.name} goes on with the next run of the timer."
            ) from None
    outcome.require()
    record = outcome.reports[RECORD] or {}
    return Result("done", f"{session.name} is {record.get('status', 'TERMINATED')}.", {"record": record})


def repair(desk: Desk, request: Request) -> Result:
    """Repair a session, which stays its owner's."""
    with desk.slot():
        session = desk.find(request.fields["session"])
        desk.require_owner(session)
        trusted = {"session_user": session.user, "session_user_uid": session.uid}
        try:
            outcome = desk.runs.run(
                "repair_session", {"session_id": session.id}, trusted, [RECORD, ACCESS], desk.events()
            )
        except CancelledError:
            raise CancelledError(f"cancelled; repair {session.name} again to complete it.") from None
    outcome.require()
    record = outcome.reports[RECORD] or {}
    return Result("done", f"{session.name} is {record.get('status')}.", {"record": record})


def agents(desk: Desk, _request: Request) -> Result:
    """Return what is free on the agents."""
    with desk.slot():
        outcome = desk.runs.run("list_agents", reports=[AGENTS])
    outcome.require()
    return Result("done", "", {"agents": outcome.reports[AGENTS]})


VERBS: Mapping[str, Callable[[Desk, Request], Result]] = {
    "create": create,
    "list": list_sessions,
    "show": show,
    "logs": logs,
    "access": access,
    "token": token,
    "end": end,
    "repair": repair,
    "agents": agents,
}
