# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The labels of the collection's containers and networks.

They prove nothing: images that were made of a container have them, too. ``_session/ownership.py`` decides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

OWNER = "ai.backend.owner"
OWNER_VALUE = "backendai.cluster"
# The owner of a container that only shows its image's files: it is of no session, whatever labels the image has.
LOOK_VALUE = "backendai.cluster/look"
SESSION_ID = "ai.backend.session-id"
SESSION_NAME = "ai.backend.session-name"
KERNEL_ID = "ai.backend.kernel-id"
HOSTNAME = "ai.backend.cluster-host"
# The nonce of the claim under which a container was created: it is the session's until its id is recorded.
NONCE = "ai.backend.nonce"
IMAGE_DIGEST = "ai.backend.image-digest"
# The InfiniBand device nodes of one container, as a JSON list: if one no longer exists, the container cannot start.
INFINIBAND = "ai.backend.infiniband"
# The numbers of the supplementary groups of one container, as a JSON list.
GROUPS = "ai.backend.groups"
# The variables that the collection has derived for a container, with digests of their values, as JSON: in an image that
# was made of the container, they are not the image's own.
DERIVED = "ai.backend.derived"
# The working directory of the image's own command; the container's is another one.
FOLDER = "ai.backend.folder"
# The digest of the object's properties; if it differs, the object must be recreated.
DIGEST = "ai.backend.digest"


def network_labels(session_id: str, properties: tuple[object, ...]) -> dict[str, str]:
    """Return the labels of a session's network; ``properties`` are all properties that cannot be changed later."""
    return {OWNER: OWNER_VALUE, SESSION_ID: session_id, DIGEST: content_digest(properties)}


def content_digest(properties: object) -> str:
    """Return the digest of the plain data that an object was created from."""
    return hashlib.sha256(json.dumps(properties, sort_keys=True).encode()).hexdigest()[:16]


def has_session(labels: Mapping[str, str] | None) -> bool:
    """Return whether an object has the labels of a session: those that the filter for any session selects."""
    return (labels or {}).get(OWNER) == OWNER_VALUE and SESSION_ID in (labels or {})


def label_filter(session_id: str | None = None) -> dict[str, list[str]]:
    """Return the engine's filter for objects with the labels of one session or of any."""
    labels = [f"{OWNER}={OWNER_VALUE}"]
    return {"label": [*labels, f"{SESSION_ID}={session_id}"] if session_id else [*labels, SESSION_ID]}
