# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a user should know of a request before it starts: what it takes in all, and that it keeps nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..options import PREFIX


def advise(request: Mapping[str, Any]) -> list[str]:
    """Return sentences about the options of a session; none about a request that the playbook will refuse."""
    # In the collection, which is found once the service has started.
    from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationErrors, integer
    from ansible_collections.backendai.cluster.plugins.plugin_utils._request.advice import NO_FOLDER, describe_total
    from ansible_collections.backendai.cluster.plugins.plugin_utils._request.containers import parse_resources
    from ansible_collections.backendai.cluster.plugins.plugin_utils._request.defaults import find_open, gpus_of
    from ansible_collections.backendai.cluster.plugins.plugin_utils._request.roles import (
        build_default_roles,
        parse_roles,
    )
    from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import MAX_CLUSTER_SIZE

    problems, image = ValidationErrors(), str(request.get("session_image", ""))
    slots = parse_resources(problems, "session_resources", request.get("session_resources", {}))
    size = integer(problems, "session_cluster_size", request.get("session_cluster_size", 1), 1, MAX_CLUSTER_SIZE)
    named = parse_roles(problems, request.get("session_roles", {}), image, slots, {}, MAX_CLUSTER_SIZE)
    if problems:
        return []
    roles = named or build_default_roles(size, image, slots, {})
    left_open = find_open(request)
    # What follows the GPUs is decided by the run, which says the total.
    follows = any(gpus_of(role.resources) and left_open.get(role.name if named else "") for role in roles)
    total = [] if follows else [describe_total((role.replicas, role.resources) for role in roles)]
    writable = any(not mount["read_only"] for mount in request.get("session_mounts", ()))
    return total if writable else [*total, NO_FOLDER.replace(PREFIX, "")]
