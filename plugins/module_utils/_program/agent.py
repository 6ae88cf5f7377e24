# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The phases for an agent itself: survey returns its facts before a session is planned, cordon takes it out or back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from .._docker.client import connect
from .._host.cordon import replace_cordon
from .._host.image_records import ImageRecords
from .._host.store import Store
from .._model.change import as_diff
from .._model.cordon import Cordon
from .._model.devices import CUDA_PREFIX
from .._model.errors import EXPECTED, reason
from .._session.facts import AgentSettings, FactsQuery, collect_facts, unreserved
from .._session.look import announce
from .._session.others import find_others


def survey(options: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Return the facts of this ``agent``, or an ``error``. The images that sessions may need stay for now.

    ``settings`` are those of :class:`AgentSettings`; ``images`` and ``paths`` are those that sessions may need, and
    ``keys_of`` the ids of those whose public keys are wanted. With ``loads``, what sessions use is measured for a
    second. With ``others`` there are ``warnings`` about what runs beside sessions.
    """
    try:
        client, store = connect(options["docker_host"]), Store(options["state_path"])
        query = FactsQuery(
            images=options["images"],
            paths=options["paths"],
            keys_of=options["keys_of"],
            loads=bool(options.get("loads")),
        )
        settings = AgentSettings(**options["settings"], docker_host=options["docker_host"])
        facts = collect_facts(client, store, settings, query)
        if not check_mode:
            ImageRecords(store.images_folder).touch(image.id for image in facts.images.values() if image)
        told: dict[str, Any] = {}
        if options.get("others"):
            devices = unreserved(settings, facts.devices)
            others = find_others(client, ask_driver=any(device.slot.startswith(CUDA_PREFIX) for device in devices))
            told = {"warnings": others.warnings(devices)}
        return {"agent": facts.to_dict(), "error": None, **told}
    except EXPECTED as error:
        return {"agent": None, "error": reason(error)}


def cordon(options: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """Cordon this agent, for a ``reason`` and ``by`` a user; with ``state`` ``absent``, take it back into service.

    ``sessions_end_after`` is the number of seconds after which its sessions end, ``None`` for never; their terminals
    are told. Returns ``changed``, ``diff``, whether it was ``cordoned_before``, the cordon's ``description``, empty
    without one, and the names of the ``sessions`` on the agent. The engine need not work.
    """
    store, now, seconds = Store(options["state_path"]), time.time(), options["sessions_end_after"]
    wanted = Cordon(options["reason"], options["by"], now, None if seconds is None else now + seconds)
    after, changes = replace_cordon(store, None if options["state"] == "absent" else wanted, check_mode=check_mode)
    sessions = store.load_all()[0]
    if after and after.sessions_end_at is not None and changes and not check_mode:
        announce(options["docker_host"], store, sessions, f"{after.description}: save your work")
    return {
        "changed": bool(changes),
        "diff": as_diff(changes),
        "cordoned_before": bool(changes[0].before if changes else after),
        "description": after.description if after else "",
        "sessions": sorted(session.plan.name for session in sessions),
    }
