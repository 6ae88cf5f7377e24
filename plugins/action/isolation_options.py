# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check what ``verify_isolation`` is asked, before any host is touched, on the control node."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.module_utils._model.port_ranges import parse_ranges
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import Problems
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction


class ActionModule(ControlAction):
    """The action ``backendai.cluster.isolation_options``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args, problems = self._task.args, Problems()
        _check_hosts(problems, args)
        rate = _whole_number(args.get("rate", 16000))
        if rate < 1:
            problems.refuse("firewall_probe_rate", args["rate"], "must be a whole number, at least 1")
        ports = str(args.get("ports") or "1-65535")
        try:
            parse_ranges(ports)
        except ValueError as error:
            problems.refuse("firewall_probe_ports", ports, str(error))
        path = str(args.get("path") or "")
        if path and not os.path.isdir(os.path.dirname(os.path.abspath(os.path.expanduser(path)))):
            problems.refuse("firewall_report_path", path, "must be in a folder that is there")
        if problems:
            raise AnsibleActionFail(str(problems))
        hosts = {kind: list(args[kind]) for kind in ("outsiders", "agents", "gateways")}
        return {**result, "changed": False, **hosts, "ports": ports, "rate": rate}


def _check_hosts(problems: Problems, args: Mapping[str, Any]) -> None:
    option, pattern = "firewall_outsiders", args["pattern"]
    if not args["agents"]:
        problems.add("the inventory has no agents whose doors could be tried")
    if not args["outsiders"]:
        problems.refuse(option, pattern, "names no host of the inventory, and only from outside anything can be proven")
    for kind in ("agents", "gateways", "managers"):
        trusted = [name for name in args["outsiders"] if name in args[kind]]
        if trusted:
            problems.refuse(option, pattern, f"must not be of the {kind}, which are trusted: {', '.join(trusted)}")


def _whole_number(value: object) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() else 0
