# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Entry point of the program on hosts: runs the phase that a task requests, or the command of a systemd unit."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._host.time_limit import TimeLimitError, limited_to
from .._model.errors import sentence
from .reply import within_limit

PACKAGE = "ansible_collections.backendai.cluster.plugins.module_utils._program"
PHASES = {
    "survey": "agent",
    "cordon": "agent",
    "start": "start",
    "pull": "image",
    "prune": "image",
    "remove": "session",
    "reap": "session",
    "wait": "session",
    "verify": "session",
    "marker": "session",
    "logs": "session",
    "routes": "gateway",
    "token": "gateway_token",
    "firewall_traffic": "firewall",
    "targets": "exposure",
    "probe": "exposure",
    "inside": "exposure",
    "policy": "policy",
    "policy_folders": "policy",
}
"""The module of each phase, with a function of the phase's name; only the requested module is imported."""

Phase = Callable[[Mapping[str, Any], bool], dict[str, Any]]
"""Takes the options and whether it is check mode; returns the result."""


def reply_to(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a request and return its reply: ``result``, or ``failed`` with one sentence.

    A request has the name of its ``phase``, its ``options``, ``check_mode``, whether a ``diff`` is requested, and its
    time limit in ``seconds``: the phase then ends and releases its locks, whether or not the control node is still
    connected. Unexpected errors have a ``traceback`` too.
    """
    name, seconds = request["phase"], request["seconds"]
    try:
        with limited_to(seconds):
            result = phase(name)(request["options"], request["check_mode"])
            if not request["diff"]:
                # It is large: it has every file of every container.
                result.pop("diff", None)
            return {"result": within_limit(result)}
    except TimeLimitError:
        return {"failed": f"it took more than {seconds} seconds, and was aborted."}
    except Exception as error:
        message = sentence(error)
        if message is not None:
            return {"failed": message}
        # Imported only here, as its import takes milliseconds.
        import traceback

        return {"failed": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}


def phase(name: str) -> Phase:
    """Import and return the function of a phase."""
    function: Phase = function_of(PHASES[name], name)
    return function


def function_of(module: str, name: str) -> Callable[..., Any]:
    """Import a module of this package, and return a function of it; the launcher has disabled garbage collection."""
    function: Callable[..., Any] = getattr(importlib.import_module(f"{PACKAGE}.{module}"), name)
    gc.enable()
    return function


def command(arguments: Sequence[str]) -> int:
    """Run the command of a systemd unit and return its exit code."""
    module = next((name for name in ("health", "output") if f"--{name}" in arguments), "unit")
    return int(function_of(module, "main")(arguments))
