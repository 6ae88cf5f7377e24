# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The phases for images: pull those that an agent lacks, and remove those that nothing needs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from .._docker.client import connect
from .._docker.images import disk_usage, find_image
from .._host.store import Store
from .._model.change import Change, as_diff
from .._session.claim_guard import renew_claim
from .._session.image_access import ImageAccess
from .._session.prune import PruneRules, prune_images
from .._session.pull import ForRun, ForSession, Pull, PullStatus, Purpose, ensure_pull


def pull(options: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Renew the claim of a session; if an image is named, start its pull or return the status of that.

    ``session_id`` and ``nonce`` identify the claim, which is renewed for ``seconds``. Without a session, the run with
    that nonce wants the image for so long. ``name`` is the image, ``reference`` what is pulled for it, ``logins`` has
    the ``username`` and ``password`` for its registry, if any, and ``registry`` the agent's settings. A background
    process pulls. Returns ``images`` (by name, once pulled) and the ``size``, those ``under_way``, ``progress`` for
    display, and whether the pull was ``started``.
    """
    client, store, name = connect(options["docker_host"]), Store(options["state_path"]), options["name"]
    purpose = None if check_mode else _renew(store, options)
    if not name:
        return {"changed": False, "images": {}, "under_way": []}
    if purpose is None:
        image = find_image(client, name)
        status = PullStatus(image.identity, size=disk_usage(client, image)) if image else PullStatus(None)
    else:
        access = ImageAccess.from_options(options["logins"], options["registry"])
        status = ensure_pull(client, options["docker_host"], purpose, Pull(name, options["reference"], access))
    changes = [] if status.image else [Change(f"image {name}", None, "pulled")]
    return {
        "changed": bool(changes),
        "diff": as_diff(changes),
        "images": {name: vars(status.image)} if status.image else {},
        "size": status.size,
        "under_way": [] if status.image or check_mode else [name],
        "started": status.started,
        "progress": status.progress.describe(),
    }


def _renew(store: Store, options: Mapping[str, Any]) -> Purpose:
    """Renew the claim of the session, or the wish of the run without one."""
    session_id, nonce, seconds = options["session_id"], options["nonce"], options["seconds"]
    if session_id:
        return ForSession(store, session_id, renew_claim(store, session_id, nonce, seconds).nonce)
    purpose = ForRun(store, nonce)
    purpose.ask(options["name"], seconds)
    return purpose


def prune(options: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Remove images that nothing needs, as ``rules``, the fields of :class:`PruneRules`, say.

    Returns ``changed``, ``diff``, the ``removed`` images with ``name``, ``size`` and ``unused_days``, sentences about
    those that were ``kept`` although they should have gone, and ``folder`` and ``free`` of the engine, before and
    after.
    """
    client, store = connect(options["docker_host"]), Store(options["state_path"])
    pruned = prune_images(client, store, PruneRules(**options["rules"]), time.time(), check_mode=check_mode)
    changes = [Change(f"image {image.name}", "present", None) for image in pruned.removed]
    return {
        "changed": bool(changes),
        "diff": as_diff(changes),
        "removed": [vars(image) for image in pruned.removed],
        "kept": pruned.kept,
        "folder": pruned.folder,
        "free_before": pruned.free_before,
        "free": pruned.free,
    }
