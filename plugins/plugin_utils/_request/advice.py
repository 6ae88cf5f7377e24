# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a user should know of a new session: what it takes, that it keeps nothing, and how nobody reaches it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ...module_utils._model.quantity import format_slots
from .run_options import NetworkPools
from .spec import SessionSpec

NO_FOLDER = "No folder in session_mounts can be written: what the containers write is lost when the session ends."
NO_GATEWAY = "Nobody can log in: {} has no gateway. Operators add a host to the group gateways, and provision all."
NO_LINK = (
    "{app} has no link: none by path (links_by_path of a policy, path of an app), and none by host name, because"
    " gateway_domain is not set or the names are too long. ssh -L {port}:localhost:{port} {session} reaches it."
)
NO_KEYS = "Nobody can log in over SSH: session_authorized_keys is empty."


def advise(spec: SessionSpec, pools: NetworkPools, place: str) -> list[str]:
    """Return sentences about a valid request; ``place`` is what has the gateways, such as ``the inventory``."""
    advice = [describe_total((role.replicas, role.resources) for role in spec.effective_roles)]
    if all(mount.read_only for mount in spec.mounts):
        advice.append(NO_FOLDER)
    if not pools.gateways:
        return [*advice, NO_GATEWAY.format(place)]
    if not spec.authorized_keys and not spec.command:
        advice.append(NO_KEYS)
    for app in spec.apps:
        links = [link for site in pools.sites for link in site.app_origins(spec.name, app.name, app.path)]
        if pools.sites and app.protocol == "http" and not links:
            advice += [NO_LINK.format(app=app.name, port=app.port, session=spec.name)]
    return advice


def describe_total(groups: Iterable[tuple[int, Mapping[str, int]]]) -> str:
    """Return how the resources of one container add up, for groups of that many containers with these resources."""
    counts, total = Counter[tuple[tuple[str, int], ...]](), Counter[str]()
    for count, slots in groups:
        counts[tuple(slots.items())] += count
        total.update({slot: amount * count for slot, amount in slots.items()})
    terms = " + ".join(f"{count} × ({format_slots(dict(slots))})" for slots, count in counts.items())
    return f"Resources are of one container: {terms} = {format_slots(dict(total))} in all."
