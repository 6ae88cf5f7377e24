# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The phase firewall_traffic: what the firewall of this host would have dropped, and which programs that concerns."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

from .._docker.addresses import published_ports
from .._docker.client import DockerUnavailableError, connect
from .._firewall.state import FirewallState
from .._firewall.storage import known_storage
from .._firewall.would_drop import read_would_drop
from .._host.store import Store
from .._model.plain_data import to_plain
from .._model.reported_traffic import ReportedTraffic
from .._network.listeners import listening_programs


def firewall_traffic(options: Mapping[str, Any], _check_mode: bool) -> dict[str, Any]:
    """Return the ``mode`` of this host's firewall, and the ``traffic`` that report mode would have dropped.

    ``unlisted`` is the number of packets beyond that. A host without an engine has no containers to name. ``storage``
    is what was dropped in any mode, on the way from containers to storage services that are closed to them.
    """
    found = read_would_drop()
    programs = listening_programs() if found.elements else {}
    if found.elements:
        with contextlib.suppress(DockerUnavailableError):
            programs.update(published_ports(connect(options["docker_host"])))
    traffic = [_with_program(entry, programs) for entry in found.traffic]
    store = Store(options["state_path"])
    closed = {
        service.address: f"{service.kind}, mounted at {service.mount}" for service in known_storage(store).services
    }
    storage = [dataclasses.replace(entry, program=closed.get(entry.destination or "")) for entry in found.storage]
    return {
        "mode": FirewallState(store).mode,
        "traffic": to_plain(traffic),
        "unlisted": found.unlisted,
        "storage": to_plain(storage),
    }


def _with_program(entry: ReportedTraffic, programs: Mapping[tuple[str, int], str]) -> ReportedTraffic:
    if entry.port is None or entry.destination is not None:
        return entry
    return dataclasses.replace(entry, program=programs.get((entry.protocol, entry.port)))
