# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validate the request on the control node, before any host is contacted."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._model.mounts import Source
from ..module_utils._model.validation import ValidationError, ValidationErrors
from ..plugin_utils._lifecycle.repair import find_repairable
from ..plugin_utils._queue.entry import CREATING, QueueEntry
from ..plugin_utils._queue.selection import find_entry
from ..plugin_utils._report.record import to_json, unplanned_record
from ..plugin_utils._request.gateway import find_site
from ..plugin_utils._request.run_options import NetworkPools, RunOptions, parse_pools, parse_run
from ..plugin_utils._request.spec import SessionSpec, check_designated_agents, parse_spec, spec_from_dict
from ..plugin_utils.control import ControlAction
from ..plugin_utils.inventory_addresses import addresses_of
from ..plugin_utils.public_keys import check_public_keys
from ..plugin_utils.request_file import read_user_options
from ..plugin_utils.session_options import parse_options

REPAIR = "repair"
"""The purpose of a run that takes the request of an existing session from the queue."""

PRUNE = "prune"
"""The purpose of a run that removes images: it needs to know those of all sessions of the queue."""

LIST, *SELECTING = LOOKING = ("list", "verify", "logs")
"""The purposes of runs that start no session, so that those that wait are not looked at."""

SOURCE_ADDRESS = "gateway_source_address"
"""The variable of a gateway with the source address of its connections to agents."""


class ActionModule(ControlAction):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables = self.session_variables(task_vars or {})
        purpose = self._task.args.get("purpose") or "create"
        agents = list(self._task.args.get("agents") or [])
        try:
            # From here on, what users give is only read, never passed to the templar.
            variables |= read_user_options(variables)
            spec, run, pools = _parse(variables, purpose)
            # From here on, use the validated queue path.
            self._task.args["queue_path"] = run.queue_path
            repaired = find_repairable(run, self.queue(task_vars or {}).entries()) if purpose == REPAIR else None
            gateways = self._gateway_addresses(purpose, (task_vars or {})["hostvars"])
            if spec is not None:
                check_public_keys(spec.authorized_keys)
                check_designated_agents(spec, agents)
        except ValidationError as error:
            record = unplanned_record(None, variables.get("session_name"), "ERROR", error=str(error))
            self.write_report(str(variables.get("session_record_path") or ""), to_json(record))
            raise AnsibleActionFail(str(error)) from None
        if repaired:
            spec, result["repair"] = spec_from_dict(repaired.spec or {}), repaired.id
        queued = self.queue(task_vars or {}).entries() if purpose != LIST else []
        # Pending sessions may start in this run, too.
        entries = queued if purpose not in LOOKING else []
        waiting = [entry for entry in entries if entry.waits_for_start]
        needing = entries if purpose == PRUNE else waiting
        images = {*(spec.images if spec else ()), *(image for entry in needing for image in entry.wanted_images)}
        mounted = {Source.of(mount).word for mount in spec.mounts} if spec else set()
        result |= {
            "changed": False,
            "agents": agents,
            "run": dataclasses.asdict(run),
            "pools": {**dataclasses.asdict(pools), "gateways": tuple(gateways), "sites": self._sites(task_vars or {})},
            "images": sorted(images),
            "paths": sorted(mounted.union(*(entry.wanted_paths for entry in waiting))),
            "keys_of": sorted(entry.id for entry in entries if _needs_keys(entry, spec)),
            "session_id": _selected_id(run, queued) if purpose in SELECTING else "",
            "started_at": time.time(),
            "specs": {spec.name: dataclasses.asdict(spec)} if spec else {},
        }
        # The user's environment may hold secrets.
        result["_ansible_no_log"] = spec is not None
        return {**result, "spec": dataclasses.asdict(spec)} if spec else result

    def _gateway_addresses(self, purpose: str, hostvars: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Return the addresses of gateways. A gateway without an address is an error only for a new session."""
        hosts = self._task.args.get("gateways") or ()
        try:
            return addresses_of(hostvars, hosts, SOURCE_ADDRESS)
        except ValidationError as error:
            if purpose == "create":
                raise
            self._display.warning(str(error))
            return []

    def _sites(self, variables: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return where users reach the gateways, as plain data."""
        sites = [find_site(variables["hostvars"][host], host) for host in self._task.args.get("gateways") or ()]
        return [dataclasses.asdict(site) for site in sites if site]


def _needs_keys(entry: QueueEntry, spec: SessionSpec | None) -> bool:
    """Return whether this run may go on with a session, for which it needs the public keys of its containers."""
    return bool(entry.plan) and (entry.state == CREATING or (spec is not None and entry.name == spec.name))


def _selected_id(run: RunOptions, entries: Iterable[QueueEntry]) -> str:
    """Return the id of the session that is looked at: a name is one of the queue; empty if there is none."""
    with contextlib.suppress(ValidationError):
        entry = find_entry(run.name, run.id, entries)
        return entry.id if entry else run.id
    return ""


def _parse(variables: Mapping[str, Any], purpose: str) -> tuple[SessionSpec | None, RunOptions, NetworkPools]:
    """Parse the variables. Raises :class:`ValidationError` with all problems at once.

    The options of a session are only parsed to create one.
    """
    problems, new = ValidationErrors(), purpose == "create"
    leave_out = () if new else [field.name for field in dataclasses.fields(SessionSpec)]
    values = parse_options(problems, variables, leave_out)
    spec = parse_spec(problems, values) if new else None
    run = parse_run(problems, values, needs_session=purpose in ("terminate", REPAIR, "verify", "logs"))
    pools = parse_pools(problems, values)
    problems.raise_if_any()
    return spec, run, pools
