# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check what is asked, on the control node, before any host is touched."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._model.validation import ValidationError, ValidationErrors
from ..plugin_utils._report.record import to_json, unplanned_record
from ..plugin_utils._request.run_options import NetworkPools, RunOptions, parse_pools, parse_run
from ..plugin_utils._request.spec import SessionSpec, check_designated_agents, parse_spec, spec_from_dict
from ..plugin_utils.control import ControlAction
from ..plugin_utils.inventory_addresses import addresses_of
from ..plugin_utils.public_keys import check_public_keys
from ..plugin_utils.session_options import parse_options

UNDERLAY = "gateway_source_address"
"""The variable of a gateway that names the address from which it comes to agents."""


class ActionModule(ControlAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables = self.session_variables(task_vars or {})
        purpose = self._task.args.get("purpose") or "create"
        agents = list(self._task.args.get("agents") or [])
        try:
            spec, run, pools = _checked(variables, purpose)
            gateways = self._gateways(purpose, (task_vars or {})["hostvars"])
            if spec is not None:
                check_public_keys(spec.authorized_keys)
                check_designated_agents(spec, agents)
        except ValidationError as error:
            record = unplanned_record(None, variables.get("session_name"), "ERROR", error=str(error))
            self.write_report(str(variables.get("session_record_path") or ""), to_json(record))
            raise AnsibleActionFail(str(error)) from None
        # From here on, the queue is the one that was asked for.
        self._task.args["queue_path"] = run.queue_path
        specs = [*self._waiting(task_vars or {}), *([spec] if spec else [])]
        result |= {
            "changed": False,
            "agents": agents,
            "run": dataclasses.asdict(run),
            "pools": {**dataclasses.asdict(pools), "gateways": tuple(gateways)},
            "images": sorted({image for one in specs for image in one.images}),
            "paths": sorted({mount.source for one in specs for mount in one.mounts}),
            "ask": self._unknown(run, purpose, agents, task_vars or {}),
            "started_at": time.time(),
            "specs": {one.name: dataclasses.asdict(one) for one in specs},
        }
        # The user's environment may hold secrets.
        result["_ansible_no_log"] = bool(specs)
        return {**result, "spec": dataclasses.asdict(spec)} if spec else result

    def _gateways(self, purpose: str, hostvars: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Return the addresses of gateways; one without an address keeps nobody from anything but a new session."""
        hosts = self._task.args.get("gateways") or ()
        try:
            return addresses_of(hostvars, hosts, UNDERLAY)
        except ValidationError as error:
            if purpose == "create":
                raise
            self._display.warning(str(error))
            return []

    def _waiting(self, task_vars: dict[str, Any]) -> list[SessionSpec]:
        """Return the requests that wait: they may start in this run too."""
        entries = self.queue(task_vars).entries()
        return [spec_from_dict(entry.spec) for entry in entries if entry.spec is not None]

    def _unknown(self, run: RunOptions, purpose: str, agents: list[str], task_vars: dict[str, Any]) -> list[str]:
        """Return the agents that have to be asked: a new session needs no facts that are younger than is wanted."""
        if purpose != "create" or not run.facts_max_age:
            return agents
        return [name for name in agents if self.cache(task_vars).load(name, run.facts_max_age) is None]


def _checked(variables: Mapping[str, Any], purpose: str) -> tuple[SessionSpec | None, RunOptions, NetworkPools]:
    """Return what the variables ask; raises :class:`ValidationError` with all problems at once.

    What describes a session matters to those alone who make one.
    """
    problems, new = ValidationErrors(), purpose == "create"
    leave_out = () if new else [field.name for field in dataclasses.fields(SessionSpec)]
    values = parse_options(problems, variables, leave_out)
    spec = parse_spec(problems, values) if new else None
    run = parse_run(problems, values, needs_session=purpose in ("terminate", "verify", "logs"))
    pools = parse_pools(problems, values)
    problems.raise_if_any()
    return spec, run, pools
