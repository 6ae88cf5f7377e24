# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The survey phase: returns an agent's facts before a session is planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._docker.client import connect
from .._host.store import Store
from .._model.errors import EXPECTED, reason
from .._session.facts import AgentSettings, FactsQuery, collect_facts


def survey(options: Mapping[str, Any], _check_mode: bool) -> dict[str, Any]:
    """Return the facts of this ``agent``, or an ``error``.

    ``settings`` are those of :class:`AgentSettings`; ``images`` and ``paths`` are those that sessions may need.
    """
    try:
        client, store = connect(options["docker_host"]), Store(options["state_path"])
        query = FactsQuery(images=options["images"], paths=options["paths"])
        settings = AgentSettings(**options["settings"], docker_host=options["docker_host"])
        facts = collect_facts(client, store, settings, query)
        return {"agent": facts.to_dict(), "error": None}
    except EXPECTED as error:
        return {"agent": None, "error": reason(error)}
