# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The phases for existing sessions on an agent: remove, reap, wait, verify, logs and marker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._docker.client import connect
from .._host.local_session import LocalSession
from .._host.store import Store
from .._host.time_limit import Turns
from .._host.withdrawn import withdraw
from .._model.change import Change, as_diff
from .._model.errors import EXPECTED, ClusterError, reason, sentence
from .._session import mount_markers
from .._session.command import wait_for_end
from .._session.end import SessionEnd, stop_sessions
from .._session.logs import read_logs
from .._session.output import DAYS, find_kept, read_kept
from .._session.ownership import own_containers
from .._session.reap import reap as reap_sessions
from .._session.remove import remove_claimed
from .._session.reply_logs import ReplyLogs
from .._session.verify import verify as verify_part

TIMEOUT_SECONDS = 3
"""The timeout of reachability checks when a session is verified."""


def remove(options: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Remove this agent's part of ``sessions``: ``id``, and the ``nonce`` of the run that created it, or none for any.

    ``unrouted`` are the ids of those whose routes all gateways have removed. Those of any run are asked to end first,
    unless ``force``, and their output is kept for ``history_days``. Returns ``changed``, ``diff`` and a result for each
    by its id: ``failed`` as one sentence, or if it is so ``grace_exceeded``, and ``lost_output``, sentences.
    """
    client, store = connect(options["docker_host"]), Store(options["state_path"])
    changes: list[Change] = []
    results: dict[str, dict[str, Any]] = {}
    all_unrouted = options.get("unrouted") or ()
    force, days = bool(options.get("force")), float(options.get("history_days", DAYS))
    ends = {request["id"]: SessionEnd(force, days) for request in options["sessions"] if request["nonce"] is None}
    if not check_mode:
        stop_sessions(client, store, ends)
    turns = Turns(len(options["sessions"]))
    for request in options["sessions"]:
        results[request["id"]] = {}
        try:
            unrouted, end = request["id"] in all_unrouted, ends.get(request["id"])
            with turns.turn() as seconds:
                if end:
                    end.limit_to(seconds)
                changes += remove_claimed(
                    client, store, request["id"], request["nonce"], unrouted=unrouted, end=end, check_mode=check_mode
                )
            results[request["id"]] |= end.to_dict() if end else {}
        except EXPECTED as error:
            results[request["id"]]["failed"] = sentence(error)
    return {"changed": bool(changes), "diff": as_diff(changes), "sessions": results}


def reap(options: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Remove the sessions of ``end``, restart dead containers of those of ``restart``, and remove expired claims.

    ``withdraw`` are nonces by session id: those starts claim nothing from now on, and what they have claimed stays.
    ``unrouted`` are the ids of ended sessions whose routes all gateways have removed.
    Ended sessions are asked first; their output is kept for ``history_days``. Returns ``changed``, ``diff``, and by
    session id ``failures``, a sentence, and ``ends`` with ``grace_exceeded`` and ``lost_output``.
    """
    client, store = connect(options["docker_host"]), Store(options["state_path"])
    unrouted, days = options.get("unrouted") or (), float(options.get("history_days", DAYS))
    ends = {session_id: SessionEnd(days=days) for session_id in options["end"]}
    nonces = options.get("withdraw") or {}
    failures = _withdraw(store, nonces) if nonces and not check_mode else {}
    reaped = reap_sessions(
        client, store, ends, options["restart"], expired=True, unrouted=unrouted, check_mode=check_mode
    )
    return {
        "changed": bool(reaped.changes),
        "diff": as_diff(reaped.changes),
        "failures": {**failures, **reaped.failures},
        "ends": {session_id: end.to_dict() for session_id, end in ends.items()},
    }


def _withdraw(store: Store, nonces: Mapping[str, str]) -> dict[str, str]:
    """Refuse further claims of starts, nonces by session id; return why that failed, by session id."""
    try:
        with store.lock():
            for nonce in nonces.values():
                withdraw(nonce)
    except EXPECTED as error:
        return dict.fromkeys(nonces, reason(error))
    return {}


def wait(options: Mapping[str, Any], _check_mode: bool) -> dict[str, Any]:
    """Wait at most ``timeout`` seconds for main1 of ``session_id`` to end; return ``ended`` and its ``exit_code``."""
    client, store = connect(options["docker_host"]), Store(options["state_path"])
    ended, exit_code = wait_for_end(client, store, options["session_id"], options["timeout"])
    return {"ended": ended, "exit_code": exit_code}


def verify(options: Mapping[str, Any], _check_mode: bool) -> dict[str, Any]:
    """Return the verified part of the session ``session_id`` as the only one of ``parts``, or an ``error``."""
    store = Store(options["state_path"])
    try:
        session = _find_session(store, options["session_id"])
        parts = [verify_part(connect(options["docker_host"]), store, session, TIMEOUT_SECONDS)] if session else []
    except EXPECTED as error:
        return {"parts": [], "error": reason(error)}
    return {"parts": parts, "error": None}


def logs(options: Mapping[str, Any], _check_mode: bool) -> dict[str, Any]:
    """Return the part of the session ``session_id`` as the only one of ``parts``, with the last ``lines`` of each log.

    With ``kernel``, the hostname of a container, only its logs are returned; with ``since``, in seconds since the epoch
    by hostname, only the later lines of containers. All logs share the bytes of the reply. A part that has ended has an
    ``ended_at``.
    """
    store, session_id, reply, parts = Store(options["state_path"]), options["session_id"], ReplyLogs(), []
    kernel, lines = options["kernel"], options["lines"]
    try:
        session, kept = _find_session(store, session_id), find_kept(store, session_id)
        if session:
            client = connect(options["docker_host"])
            parts.append(read_logs(client, store, session, kernel, lines, reply, options.get("since")))
        elif kept:
            parts.append(read_kept(store, kept, kernel, lines, reply))
    except EXPECTED as error:
        return {"parts": [], "error": reason(error)}
    return {"parts": parts, "error": None}


def _find_session(store: Store, session_id: str) -> LocalSession | None:
    """Return the session of that id, ``None`` if this agent has no part of it; nothing has an empty one."""
    return store.session(session_id) if session_id else None


def marker(options: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Create, find or remove the marker file ``marker`` in the mounts of ``session_id``, as ``operation`` selects.

    Returns the targets of mounts: ``created``, ``observed`` (by hostname, what the container sees) or ``leftover``.
    """
    store = Store(options["state_path"])
    session = store.session(options["session_id"])
    if session is None:
        raise ClusterError(f"the session {options['session_id']} is not on this agent")
    client, name, plan = connect(options["docker_host"]), options["marker"], session.plan
    own = own_containers(client, store, session)
    if options["operation"] == "find":
        return {"observed": mount_markers.find_markers(client, own, plan, name)}
    if options["operation"] == "create":
        return {"created": [] if check_mode else mount_markers.create_marker(client, own, plan, name)}
    return {"leftover": [] if check_mode else mount_markers.remove_marker(client, own, plan, name)}
