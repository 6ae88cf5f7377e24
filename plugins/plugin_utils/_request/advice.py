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

NO_FOLDER = (
    "No folder that can be written is among session_mounts: what the containers write is lost when the session ends."
)
NO_GATEWAY = "Nobody can log in: {} has no gateway. Operators add a host to the group gateways, and provision all."
NO_LINK = (
    "{app} has no link: none by path (links_by_path of a policy, path of an app), and none by host name, because"
    " gateway_domain is not set or the names are too long. ssh -L {port}:localhost:{port} {session} reaches it."
)
NO_LINK_OF_MANAGER = (
    "{app} has no link: operators set gateway_domain, or links_by_path of the policy; or a name is too long for one."
    " On your own computer, ssh -L {port}:localhost:{port} {session} reaches it, with what backendai ssh-config prints"
    " for it (--for-laptop --key FILE)."
)
NO_KEYS = "Nobody can log in over SSH: session_authorized_keys is empty."


def advise(spec: SessionSpec, pools: NetworkPools, *, by_manager: bool) -> list[str]:
    """Return sentences about a valid request, which a user of a manager has made, or who has the inventory."""
    advice = [describe_total((role.replicas, role.resources) for role in spec.effective_roles)]
    if sum(role.replicas for role in spec.effective_roles) == 1:
        # That is what was asked for.
        advice = []
    if all(mount.read_only for mount in spec.mounts):
        advice.append(NO_FOLDER)
    if not pools.gateways:
        return [*advice, NO_GATEWAY.format("this manager" if by_manager else "the inventory")]
    if not spec.authorized_keys and not spec.command:
        advice.append(NO_KEYS)
    for app in spec.apps:
        links = [link for site in pools.sites for link in site.app_origins(spec.name, app.name, app.path)]
        if pools.sites and app.protocol == "http" and not links:
            text = NO_LINK_OF_MANAGER if by_manager else NO_LINK
            advice += [text.format(app=app.name, port=app.port, session=spec.name)]
    return advice


def describe_total(groups: Iterable[tuple[int, Mapping[str, int]]]) -> str:
    """Return how the resources of one container add up, for groups of that many containers with these resources."""
    counts, total = Counter[tuple[tuple[str, int], ...]](), Counter[str]()
    for count, slots in groups:
        counts[tuple(slots.items())] += count
        total.update({slot: amount * count for slot, amount in slots.items()})
    terms = " + ".join(f"{count} × ({format_slots(dict(slots))})" for slots, count in counts.items())
    return f"Resources are of one container: {terms} = {format_slots(dict(total))} in all."
