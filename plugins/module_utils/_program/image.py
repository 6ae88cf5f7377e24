# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pull phase: pulls images that an agent lacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._docker.client import connect
from .._docker.images import find_image
from .._host.store import Store
from .._model.change import Change, as_diff
from .._session.claim import renew_claim
from .._session.image_access import ImageAccess
from .._session.pull import Pull, PullStatus, ensure_pull


def pull(options: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Renew the claim of a session; if an image is named, start its pull or return the status of that.

    ``session_id`` and ``nonce`` identify the claim, which is renewed for ``seconds``. ``name`` is the image,
    ``reference`` what is pulled for it, ``logins`` has the ``username`` and ``password`` for its registry, if any, and
    ``registry`` the agent's settings. A background process pulls. Returns ``images`` (by name, once pulled), those
    ``under_way``, ``progress`` for display, and whether the pull was ``started``.
    """
    client, store, name = connect(options["docker_host"]), Store(options["state_path"]), options["name"]
    session = None if check_mode else renew_claim(store, options["session_id"], options["nonce"], options["seconds"])
    if not name:
        return {"changed": False, "images": {}, "under_way": []}
    if session is None:
        image = find_image(client, name)
        status = PullStatus(image.identity if image else None)
    else:
        access = ImageAccess.from_options(options["logins"], options["registry"])
        status = ensure_pull(client, options["docker_host"], store, session, Pull(name, options["reference"], access))
    changes = [] if status.image else [Change(f"image {name}", None, "pulled")]
    return {
        "changed": bool(changes),
        "diff": as_diff(changes),
        "images": {name: vars(status.image)} if status.image else {},
        "under_way": [] if status.image or check_mode else [name],
        "started": status.started,
        "progress": status.progress.describe(),
    }
