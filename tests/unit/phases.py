"""Runs requests to the host program in this process."""

from __future__ import annotations

from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._program.main import reply_to

NOWHERE = "unix:///nowhere/docker.sock"


def reply_of(phase: str, options: dict[str, Any], *, check_mode: bool = False, diff: bool = True) -> dict[str, Any]:
    """Return the reply of a phase: ``result``, or ``failed``."""
    request = {"phase": phase, "options": options, "check_mode": check_mode, "diff": diff, "seconds": 60}
    return reply_to(request)


def result_of(phase: str, options: dict[str, Any], *, check_mode: bool = False) -> dict[str, Any]:
    """Return the result of a phase that succeeds."""
    reply = reply_of(phase, options, check_mode=check_mode)
    assert list(reply) == ["result"], reply
    result: dict[str, Any] = reply["result"]
    return result


def failure_of(phase: str, options: dict[str, Any], *, check_mode: bool = False) -> str:
    """Return the error message of a phase that fails."""
    reply = reply_of(phase, options, check_mode=check_mode)
    assert list(reply) == ["failed"], reply
    return str(reply["failed"])
