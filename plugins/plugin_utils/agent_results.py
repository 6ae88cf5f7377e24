# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What agents said of one session, from the variables that hold their results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def parts_said(
    said: Mapping[str, Mapping[str, Any]], variable: str
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """Return what each agent holds of the session, and why the others could not be asked.

    ``variable`` names the result of a module that gives ``parts`` and ``unfit``; ``said`` has the variables of agents.
    """
    parts, unfit = {}, {}
    for agent, variables in said.items():
        result = variables.get(variable) or {"msg": "hidden by --limit"}
        if "parts" in result and not result["unfit"]:
            parts[agent] = result["parts"]
        else:
            why = str(result.get("unfit") or result.get("msg", "it gave no answer"))
            unfit[agent] = " ".join(why.split()).rstrip(".")
    return parts, unfit
