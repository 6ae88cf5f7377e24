# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the addresses of an agent or a gateway, or probe from an untrusted host or from inside of containers."""

from __future__ import annotations

from typing import Any

from ..module_utils._module import CAPACITY_OPTIONS, CONNECTION_OPTIONS, GATEWAY_OPTIONS, SEPARATION_OPTIONS
from ..plugin_utils.host_action import HostAction

# Timeout of each phase in seconds. A probe takes one minute, or several if the limit of open files is low, or if
# another run probes from the same host.
SECONDS = {"targets": 60, "probe": 1800, "inside": 180}

PHASE: dict[str, dict[str, Any]] = {"phase": {"type": "str", "choices": list(SECONDS), "required": True}}

# The options of each phase. The settings of a host are its variables that begin with its kind.
OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "targets": {"kind": {"type": "str", "choices": ["agent", "gateway"], "required": True}},
    "probe": {
        "own": {"type": "list", "elements": "str", "required": True},
        "addresses": {"type": "list", "elements": "str", "required": True},
        "ports": {"type": "str", "default": "1-65535"},
        "udp_ports": {"type": "list", "elements": "int", "default": []},
        "echo": {"type": "bool", "default": True},
        "rate": {"type": "int", "default": 16000},
    },
    "inside": {"targets": {"type": "list", "elements": "dict", "required": True}},
}
ENGINE = {"docker_host": CONNECTION_OPTIONS["docker_host"]}
VARIABLES: dict[str, dict[str, dict[str, Any]]] = {
    "agent": {
        **ENGINE,
        "underlay_address": CAPACITY_OPTIONS["underlay_address"],
        "management_networks": SEPARATION_OPTIONS["management_networks"],
        "compute_networks": SEPARATION_OPTIONS["compute_networks"],
        "wireguard_port": {"type": "int", "default": 51820},
    },
    "gateway": {**GATEWAY_OPTIONS, "https_port": {"type": "int", "default": 443}},
}
STATE = {"state_path": CONNECTION_OPTIONS["state_path"]}


class ActionModule(HostAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        args = self._task.args
        phase = self.options(PHASE, {name: args[name] for name in PHASE if name in args})["phase"]
        options = self.options(OPTIONS[phase], {name: value for name, value in args.items() if name not in PHASE})
        if phase == "targets":
            kind = options["kind"]
            options |= self.variables(VARIABLES[kind], f"{kind}_", variables)
            # On agents, the firewall's state is in the folder of the agent.
            firewall = self.variables(STATE, "agent_" if kind == "agent" else "firewall_", variables)
            options["firewall_state_path"] = firewall["state_path"]
        elif phase == "inside":
            options |= self.variables({**ENGINE, **STATE}, "agent_", variables)
        return {**result, "changed": False, **self.call(phase, options, variables, SECONDS[phase])}
