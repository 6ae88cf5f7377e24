# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is asked of a run, validated before any host is contacted: a session, the options of the run, where it works."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..module_utils._model.mounts import Source
from ..module_utils._model.validation import ValidationError, ValidationErrors
from ._lifecycle.repair import find_repairable
from ._queue.entry import CREATING, QueueEntry
from ._queue.selection import find_entry
from ._queue.store import QueueStore
from ._request.defaults import Open, find_open
from ._request.gateway import find_site
from ._request.run_options import NetworkPools, RunOptions, parse_pools, parse_run
from ._request.spec import SessionSpec, check_designated_agents, parse_spec, spec_from_dict
from .cluster_view import HostVariables
from .inventory_addresses import addresses_of
from .public_keys import check_public_keys
from .session_options import parse_options

CREATE, REPAIR, TERMINATE, SCHEDULE = "create", "repair", "terminate", "schedule"
"""The purposes of runs that change sessions; a repair takes the request of an existing one from the queue."""

PRUNE = "prune"
"""The purpose of a run that removes images: it needs to know those of all sessions of the queue."""

LIST = "list"
"""The purpose of a run that lists sessions."""

LOOK = "look"
"""The purpose of a run that looks at one session."""

SOURCE_ADDRESS = "gateway_source_address"
"""The variable of a gateway with the source address of its connections to agents."""


@dataclasses.dataclass(frozen=True)
class RunRequest:
    """What a run is asked to do, with the options that it got.

    ``spec`` is the session to create or repair, ``repair`` the id of the one to repair. ``images``, ``paths`` and
    ``keys_of`` are what agents are asked about: the images and folders that sessions may need, and the sessions of
    whose containers the public keys are needed. ``started_at`` is in seconds since the epoch. ``left_open`` are the
    slots that a new request does not name.
    """

    run: RunOptions
    pools: NetworkPools
    agents: list[str]
    gateways: list[str]
    images: list[str]
    paths: list[str]
    keys_of: list[str]
    started_at: float
    spec: SessionSpec | None = None
    repair: str = ""
    left_open: Open = dataclasses.field(default_factory=dict)


def read_request(
    purpose: str,
    variables: Mapping[str, Any],
    agents: Sequence[str],
    gateways: Sequence[str],
    hosts: HostVariables,
    queue_at: Callable[[str], QueueStore],
    warn: Callable[[str], None],
) -> RunRequest:
    """Return the request of a run from the variables that begin with ``session_``; ``queue_at`` returns the queue.

    Raises :class:`ValidationError` with all problems at once.
    """
    spec, run, pools = parse_request(variables, purpose)
    queue = queue_at(run.queue_path)
    repaired = find_repairable(run, queue.entries()) if purpose == REPAIR else None
    addresses = _gateway_addresses(purpose, gateways, hosts, warn)
    if spec is not None:
        check_public_keys(spec.authorized_keys)
        check_designated_agents(spec, agents)
    if repaired:
        spec = spec_from_dict(repaired.spec or {})
    # Pending sessions may start in this run, too.
    entries = queue.entries()
    waiting = [entry for entry in entries if entry.waits_for_start]
    needing = entries if purpose == PRUNE else waiting
    images = {*(spec.images if spec else ()), *(image for entry in needing for image in entry.wanted_images)}
    mounted = {Source.of(mount).word for mount in spec.mounts} if spec else set()
    sites = [site for host in gateways if (site := find_site(hosts[host], host))]
    return RunRequest(
        run=run,
        pools=dataclasses.replace(pools, gateways=tuple(addresses), sites=sites),
        agents=list(agents),
        gateways=list(gateways),
        images=sorted(images),
        paths=sorted(mounted.union(*(entry.wanted_paths for entry in waiting))),
        keys_of=sorted(entry.id for entry in entries if _needs_keys(entry, spec)),
        started_at=time.time(),
        spec=spec,
        repair=repaired.id if repaired else "",
        left_open=find_open(variables) if purpose == CREATE else {},
    )


def _gateway_addresses(
    purpose: str, gateways: Sequence[str], hosts: HostVariables, warn: Callable[[str], None]
) -> list[str]:
    """Return the addresses of gateways. A gateway without an address is an error only for a new session."""
    try:
        return addresses_of(hosts, gateways, SOURCE_ADDRESS)
    except ValidationError as error:
        if purpose == CREATE:
            raise
        warn(str(error))
        return []


def _needs_keys(entry: QueueEntry, spec: SessionSpec | None) -> bool:
    """Return whether this run may go on with a session, for which it needs the public keys of its containers."""
    return bool(entry.plan) and (entry.state == CREATING or (spec is not None and entry.name == spec.name))


def selected_id(run: RunOptions, entries: Iterable[QueueEntry]) -> str:
    """Return the id of the session that is looked at: a name is one of the queue; empty if there is none."""
    with contextlib.suppress(ValidationError):
        entry = find_entry(run.name, run.id, entries)
        return entry.id if entry else run.id
    return ""


def parse_request(variables: Mapping[str, Any], purpose: str) -> tuple[SessionSpec | None, RunOptions, NetworkPools]:
    """Parse the variables. Raises :class:`ValidationError` with all problems at once.

    The options of a session are only parsed to create one.
    """
    problems, new = ValidationErrors(), purpose == CREATE
    leave_out = () if new else [field.name for field in dataclasses.fields(SessionSpec)]
    values = parse_options(problems, variables, leave_out)
    spec = parse_spec(problems, values) if new else None
    run = parse_run(problems, values, needs_session=purpose in (TERMINATE, REPAIR, LOOK))
    pools = parse_pools(problems, values)
    problems.raise_if_any()
    return spec, run, pools
