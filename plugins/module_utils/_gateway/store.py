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
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from .._host.files import DesiredFile
from .._model.errors import as_phrase
from .._model.files import LOCK_SECONDS, describe_held_lock, locked
from .._model.session import is_session_id
from .._model.state_format import StateFormat
from .model import Gateway, GatewayError
from .routes import Route, check_route

_GATEWAY = StateFormat("the settings", Gateway)
_ROUTE = StateFormat("the route", Route)

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
            gateway = _GATEWAY.load(path.read_bytes())
            gateway.check()
            return gateway
        except OSError as error:
            raise self._not_ready_error(error) from error
        except ValueError as error:
            raise _corrupt_error(path, error) from error

    def routes(self) -> tuple[dict[str, Route], dict[str, str]]:
        """Return the readable routes by session id, and a sentence for each of the other files, by its stem."""
        loaded = {path: _load_route(path) for path in sorted(self._routes.glob("*.json"))}
        remedy = "run backendai.cluster.schedule_sessions, which writes the routes of all sessions that run."
        return (
            {path.stem: route for path, route in loaded.items() if isinstance(route, Route)},
            {
                path.stem: f"{path} is damaged ({route}), so its session is left out: {remedy}"
                for path, route in loaded.items()
                if not isinstance(route, Route)
            },
        )

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

    def plan_route_files(self, routes: dict[str, Route], kept: Collection[str] = ()) -> list[DesiredFile]:
        """Return the files of these routes, and removals of stale files but those with the stems ``kept``."""
        files = {self._routes / f"{route.id}.json": _ROUTE.dump(route, indent=1) + "\n" for route in routes.values()}
        existing = (path for path in sorted(self._routes.glob("*.json")) if path.stem not in kept)
        stale = [DesiredFile(path, None) for path in existing if path not in files]
        return [*stale, *(DesiredFile(path, content) for path, content in files.items())]

    def _not_ready_error(self, error: OSError) -> GatewayError:
        return GatewayError(
            f"{self._root} is not ready ({error.strerror}): run backendai.cluster.provision_gateways on this host."
        )


def _load_route(path: Path) -> Route | str:
    """Return the route in a file, or why it cannot be used: a phrase."""
    try:
        route = _ROUTE.load(path.read_bytes())
        check_route(route)
    except (OSError, ValueError) as error:
        return as_phrase(error)
    return route if route.id == path.stem else "it is the route of another session"


def _corrupt_error(path: Path, error: ValueError) -> GatewayError:
    return GatewayError(
        f"{path} is damaged ({error}): remove it, and run backendai.cluster.provision_gateways on this host."
    )
