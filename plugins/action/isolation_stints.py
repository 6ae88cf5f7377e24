# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide what outsiders try, from what agents and gateways said of themselves, on the control node."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._exposure.model import (
    AGENT,
    GATEWAY,
    Target,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.addressing import is_address
from ansible_collections.backendai.cluster.plugins.module_utils._model.port_ranges import parse_ranges
from ansible_collections.backendai.cluster.plugins.plugin_utils._exposure.report import stints_of
from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_results import why_silent
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction

# The variable of each agent and gateway that holds the result of ``isolation_targets``.
SAID = "__isolation_targets"

_INVENTORY = ("ansible_host", "agent_underlay_address")


class ActionModule(ControlAction):
    """The action ``backendai.cluster.isolation_stints``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args, hostvars = self._task.args, (task_vars or {})["hostvars"]
        targets = [_target(name, AGENT, hostvars[name]) for name in args["agents"]]
        targets += [_target(name, GATEWAY, hostvars[name]) for name in args["gateways"]]
        stints = stints_of(targets, parse_ranges(str(args["ports"])), int(args["rate"]))
        return {
            **result,
            "changed": False,
            "warnings": [f"{one.name}: {one.unread}." for one in targets if one.unread],
            "targets": [dataclasses.asdict(one) for one in targets],
            "stints": [dataclasses.asdict(one) for one in stints],
        }


def _target(name: str, kind: str, variables: Mapping[str, Any]) -> Target:
    """Return what is to be tried of a host; where it cannot be asked, what the inventory has of it."""
    said = variables.get(SAID) or {}
    if "addresses" in said:
        return Target.from_dict(
            {"name": name, "kind": kind, **{key: said[key] for key in ("addresses", "udp_ports", "expected", "unread")}}
        )
    known = [str(variables[key]) for key in _INVENTORY if is_address(str(variables.get(key, "")))]
    unread = f"it cannot be asked for its addresses: {why_silent(said)}"
    return Target(name, kind, dict.fromkeys(known, kind), unread=unread)
