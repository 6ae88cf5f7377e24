# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts said, from the variables that hold the results of their tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..module_utils._model.errors import as_phrase

HIDDEN = "hidden by --limit"


def collect_parts(
    hostvars: Mapping[str, Mapping[str, Any]], variable: str
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """Return what each agent holds of the session, and why the others could not be asked.

    ``variable`` names the result of a module that gives ``parts`` and ``unfit``; ``said`` has the variables of agents.
    """
    parts, errors = {}, {}
    for agent, variables in hostvars.items():
        result = variables.get(variable) or {}
        if "parts" in result and not result["error"]:
            parts[agent] = result["parts"]
        else:
            errors[agent] = describe_missing_result(result)
    return parts, errors


def describe_missing_result(result: Mapping[str, Any]) -> str:
    """Return why a host gave nothing of use, as a phrase; its ``result`` is empty where it was not asked at all."""
    return as_phrase(result.get("error") or result.get("msg", "it gave no answer")) if result else HIDDEN
