# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The labels by which our containers and networks are known: what does not bear them is not ours."""

from __future__ import annotations

import hashlib
import json

OWNER = "ai.backend.owner"
OWNER_VALUE = "backendai.cluster"
SESSION_ID = "ai.backend.session-id"
SESSION_NAME = "ai.backend.session-name"
KERNEL_ID = "ai.backend.kernel-id"
HOSTNAME = "ai.backend.cluster-host"
IMAGE_DIGEST = "ai.backend.image-digest"
# What one container takes, as JSON: so that an agent can be read even where its folders were lost.
SLOTS = "ai.backend.slots"
# The ids of the devices that one container has, by slot, as JSON: nobody else gets them while it is there.
DEVICES = "ai.backend.devices"
# What the thing was made from; a different digest means that it must be made anew.
DIGEST = "ai.backend.digest"


def network_labels(session_id: str, made_from: tuple[object, ...]) -> dict[str, str]:
    """Return the labels of a session's network, given everything that cannot be changed once it is made."""
    return {OWNER: OWNER_VALUE, SESSION_ID: session_id, DIGEST: content_digest(made_from)}


def content_digest(made_from: object) -> str:
    """Return what stands for the plain data that a thing was made from."""
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]


def label_filter(session_id: str | None = None) -> dict[str, list[str]]:
    """Return the engine's filter for what is ours, of one session or of all."""
    labels = [f"{OWNER}={OWNER_VALUE}"]
    return {"label": [*labels, f"{SESSION_ID}={session_id}"] if session_id else [*labels, SESSION_ID]}
