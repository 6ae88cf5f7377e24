# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stores the state of a gateway in a folder that only root can read, and that survives a reboot.

``gateway.json`` contains the public name and ports, ``routes/ID.json`` the route of each session, ``ended`` an empty
file for each session that ended lately. ``maps`` and ``table.nft`` are derived from these, and read by HAProxy and
``nft`` at start. ``token.key`` signs tokens.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from .._host.files import DesiredFile
from .._model.files import LOCK_SECONDS, describe_held_lock, dump_state, load_state, locked
from .._model.plain_data import from_plain, to_plain
from .._model.session import is_session_id
from .model import Gateway, GatewayError
from .routes import Route

ENDED_SECONDS = 86400
"""How long a gateway remembers an ended session: longer than any run uses what it has read from agents."""


class GatewayStore:
    """The folder ``state_path`` of a gateway; :meth:`lock` makes several steps atomic."""

    def __init__(self, state_path: str) -> None:
        self._root = Path(state_path)
        self._routes = self._root / "routes"
        self._ended = self._root / "ended"

    @property
    def key(self) -> Path:
        """The file of the key that signs tokens."""
        return self._root / "token.key"

    @property
    def maps(self) -> Path:
        """The folder of HAProxy's maps."""
        return self._root / "maps"

    @property
    def table(self) -> Path:
        """The file of the firewall table."""
        return self._root / "table.nft"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the gateway, against concurrent changes. Raises :class:`GatewayError`."""
        with contextlib.ExitStack() as stack:
            try:
                handle = stack.enter_context(locked(self._root / "lock", LOCK_SECONDS, create=True))
            except OSError as error:
                raise self._not_ready_error(error) from error
            if handle is None:
                raise GatewayError(describe_held_lock(self._root / "lock", LOCK_SECONDS))
            yield

    def gateway(self) -> Gateway:
        """Return the public name and ports of this gateway. Raises :class:`GatewayError` if it is not provisioned."""
        path = self._root / "gateway.json"
        try:
            return Gateway(**json.loads(path.read_text()))
        except OSError as error:
            raise self._not_ready_error(error) from error
        except (TypeError, ValueError) as error:
            raise _corrupt_error(path) from error

    def routes(self) -> dict[str, Route]:
        """Return all routes by session id. Raises :class:`GatewayError` for a file that cannot be read."""
        return {route.id: route for route in map(_load_route, sorted(self._routes.glob("*.json")))}

    def ended(self) -> set[str]:
        """Return the ids of sessions that ended lately."""
        return {path.name for path in self._ended.glob("*")}

    def save_ended(self, session_ids: Iterable[str], *, purge: bool) -> None:
        """Remember ended sessions, and forget those of long ago; all others with ``purge``."""
        self._ended.mkdir(mode=0o700, exist_ok=True)
        for path in self._ended.glob("*"):
            if purge or time.time() - path.stat().st_mtime > ENDED_SECONDS:
                path.unlink()
        for session_id in filter(is_session_id, {*session_ids} - self.ended()):
            self._ended.joinpath(session_id).touch(mode=0o600)

    def plan_route_files(self, routes: dict[str, Route]) -> list[DesiredFile]:
        """Return the files of these routes, and removals of stale files."""
        files = {
            self._routes / f"{route.id}.json": dump_state(to_plain(route), indent=1) + "\n" for route in routes.values()
        }
        stale = [DesiredFile(path, None) for path in sorted(self._routes.glob("*.json")) if path not in files]
        return [*stale, *(DesiredFile(path, content) for path, content in files.items())]

    def _not_ready_error(self, error: OSError) -> GatewayError:
        return GatewayError(
            f"{self._root} is not ready ({error.strerror}): run backendai.cluster.provision_gateways on this host."
        )


def _load_route(path: Path) -> Route:
    try:
        return from_plain(Route, load_state(path.read_text()), "the route")
    except ValueError as error:
        raise _corrupt_error(path) from error


def _corrupt_error(path: Path) -> GatewayError:
    return GatewayError(f"{path} is damaged: remove it, and run backendai.cluster.provision_gateways on this host.")
