# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ends containers of sessions: they are asked first, and what they printed is kept before they are removed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from .._docker import containers
from .._docker.sdk import docker
from .._docker.stop import stop_containers
from .._host.image_records import ImageRecords
from .._host.local_session import LocalSession
from .._host.store import CorruptStateError, Store
from .._model.change import Change
from .._model.session import STOP_GRACE
from .container_states import read_end
from .kept_logs import SECONDS
from .output import DAYS, keep_output
from .ownership import own_containers


@dataclasses.dataclass
class SessionEnd:
    """How a session ends on an agent: ``force`` kills at once, output is kept for ``days``, and read for ``seconds``.

    The rest are results: whether the processes have had their grace, whether they exceeded it, and why output of
    containers was lost, by hostname.
    """

    force: bool = False
    days: float = DAYS
    seconds: float = SECONDS
    asked: bool = False
    grace_exceeded: bool = False
    lost: dict[str, str] = dataclasses.field(default_factory=dict)

    def limit_to(self, seconds: float | None) -> None:
        """Say how many seconds the end may take, ``None`` for no limit: output is read for half of them at most."""
        if seconds is not None:
            self.seconds = min(self.seconds, seconds / 2)

    def to_dict(self) -> dict[str, Any]:
        """Return the results as plain data; nothing if it went well."""
        lost = [f"{hostname}: {problem}" for hostname, problem in self.lost.items()]
        exceeded = {"grace_exceeded": True} if self.grace_exceeded else {}
        return {**exceeded, **({"lost_output": lost} if lost else {})}


def stop_sessions(client: docker.APIClient, store: Store, ends: Mapping[str, SessionEnd]) -> None:
    """Stop all containers of sessions, by id, at the same time; the grace is that of their plans.

    No lock is held meanwhile. A claim that was never committed is not asked, and no session is asked twice.
    """
    graces: dict[str, float] = {}
    sessions: dict[str, SessionEnd] = {}
    for session_id, end in ends.items():
        try:
            session = store.session(session_id)
        except CorruptStateError:
            session = None
        except ValueError:
            # No id of a session: what removes it says so.
            continue
        grace = STOP_GRACE if session is None else session.plan.stop_grace if session.committed else 0
        for container in own_containers(client, store, session or session_id).values():
            graces[container["Id"]] = 0 if end.force or end.asked else grace
            sessions[container["Id"]] = end
    if graces:
        for container_id in stop_containers(client, graces):
            sessions[container_id].grace_exceeded = True
    for end in ends.values():
        end.asked = True


def remove_containers(
    client: docker.APIClient, store: Store, session_id: str, session: LocalSession | None, end: SessionEnd | None
) -> list[Change]:
    """Remove the containers of a session, whose lock is held; with an ``end``, what they printed is kept."""
    existing = own_containers(client, store, session or session_id)
    if end is not None and session is None:
        end.lost |= dict.fromkeys(existing, "its plan is damaged, so its output has no place")
    elif end is not None and session is not None and session.committed:
        unkept = {name: each for name, each in existing.items() if read_end(store, session_id, name) is None}
        end.lost |= keep_output(client, store, session, unkept, end.days, end.seconds)
    ImageRecords(store.images_folder).touch({each["ImageID"] for each in existing.values() if each.get("ImageID")})
    return containers.remove_containers(client, existing.values())


def replace_containers(
    client: docker.APIClient, store: Store, session: LocalSession, container_ids: Iterable[str]
) -> dict[str, str]:
    """End containers that a repair replaces, and keep what they printed; return what was lost, by hostname."""
    ids = {*container_ids}
    if not ids or not session.committed:
        return {}
    stop_containers(client, dict.fromkeys(ids, session.plan.stop_grace))
    own = own_containers(client, store, session)
    existing = {hostname: container for hostname, container in own.items() if container["Id"] in ids}
    return keep_output(client, store, session, existing)
