# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pulls an image in a background process, for as long as the session is claimed.

The process writes its state into the session's folder. It holds a lock until it ends: that shows whether it still
runs, and keeps a run that takes the session over from starting a second one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from .._docker.client import connect
from .._docker.images import ImagePullError, Progress, PullLayers, find_image, pull_image
from .._docker.registry import RegistryError
from .._docker.sdk import docker
from .._host.processes import daemonize
from .._host.registry_records import RegistryRecords
from .._host.store import LocalSession, Store
from .._model.files import locked, write_atomically
from .._model.images import ImageIdentity, registry_of, repository_of
from .image_access import ImageAccess

# Interval at which the background process checks the claim and writes the progress, in seconds.
POLL_SECONDS = 0.5


# Seconds without progress from the engine after which a pull fails.
STALL_SECONDS = 600

_STALLED = f"no progress for {STALL_SECONDS} seconds"


@dataclasses.dataclass(frozen=True)
class Pull:
    """An image to pull: its ``name``, the ``reference`` that is pulled for it, and the logins that may be used."""

    name: str
    reference: str
    access: ImageAccess = dataclasses.field(default_factory=ImageAccess)


@dataclasses.dataclass(frozen=True)
class PullStatus:
    """The state of a pull: the ``image`` once it exists, else the ``progress``; and whether it was just ``started``."""

    image: ImageIdentity | None
    progress: Progress = dataclasses.field(default_factory=Progress)
    started: bool = False


def ensure_pull(
    client: docker.APIClient, docker_host: str, store: Store, session: LocalSession, pull: Pull
) -> PullStatus:
    """Start a pull if the image is missing, and return its status.

    Raises :class:`ImagePullError` when it has failed, or its process was killed.
    """
    state = _PullState(store, session.plan.id, pull)
    # The lock is tried before the image is read: after a pull that ends in between, the image exists.
    with state.locked() as lock:
        image = find_image(client, pull.name)
        if image:
            return PullStatus(image.identity)
        if lock is None:
            return PullStatus(None, state.progress())
        failure = state.failure(session.nonce)
        if failure:
            state.clear()
            raise ImagePullError(failure)
        state.write(Progress())
        records = RegistryRecords(store.registries_folder)
        daemonize(lambda: _pull_worker(docker_host, state, records, pull), lock)
    return PullStatus(None, started=True)


class _PullState:
    """The state of a pull in the folder of its session."""

    def __init__(self, store: Store, session_id: str, pull: Pull) -> None:
        self._store, self._session_id, self._pull = store, session_id, pull
        folder, stem = store.folder(session_id) / "pulls", hashlib.sha256(pull.name.encode()).hexdigest()[:16]
        self._lock, self._path = folder / f"{stem}.lock", folder / f"{stem}.json"

    def locked(self) -> AbstractContextManager[int | None]:
        """Hold the lock of the pull, an open file; ``None`` while another process holds it."""
        self._lock.parent.mkdir(mode=0o700, exist_ok=True)
        return locked(self._lock, timeout=0, create=True)

    def write(self, progress: Progress, failed: str | None = None) -> bool:
        """Write the progress and the failure of the pull; return whether the session is still claimed."""
        with self._store.session_lock(self._session_id):
            session = self._store.session(self._session_id)
            if session is None or session.expired:
                return False
            state = {"nonce": session.nonce, "failed": failed, "progress": dataclasses.asdict(progress)}
            if state != self._read():
                write_atomically(self._path, json.dumps(state))
            return True

    def progress(self) -> Progress:
        """Return the last progress that was written."""
        return Progress(**self._read().get("progress", {}))

    def failure(self, nonce: str) -> str:
        """Return why the ended pull failed; empty if there was none, or it belonged to an earlier run."""
        state = self._read()
        if state.get("nonce") != nonce:
            return ""
        if state["failed"] is None:
            killed = "the pulling process was killed"
            return str(ImagePullError.from_error(self._pull.name, self._pull.reference, killed))
        return str(state["failed"])

    def clear(self) -> None:
        """Delete the state, so that the next call starts a pull again."""
        self._path.unlink()

    def _read(self) -> Mapping[str, Any]:
        try:
            state: dict[str, Any] = json.loads(self._path.read_text())
        except FileNotFoundError:
            return {}
        return state


def _pull_worker(docker_host: str, state: _PullState, records: RegistryRecords, pull: Pull) -> None:
    """Pull and write the progress; return when the pull has ended, or the session is no longer claimed.

    The engine aborts a pull when the connection that requested it closes, which it does when this process ends.
    """
    layers = PullLayers()
    results: list[str] = []
    last_event = [time.monotonic()]

    def on_event(line: Mapping[str, Any]) -> None:
        last_event[0] = time.monotonic()
        layers.update(line)

    def fetch() -> None:
        try:
            _fetch(connect(docker_host), records, pull, on_event)
            results.append("")
        except ImagePullError as error:
            results.append(str(error))
        # An exception in this thread would be lost otherwise.
        except Exception as error:
            results.append(str(ImagePullError.from_error(pull.name, pull.reference, error)))

    worker = threading.Thread(target=fetch, daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(POLL_SECONDS)
        stalled = time.monotonic() - last_event[0] > STALL_SECONDS
        error = str(ImagePullError.from_error(pull.name, pull.reference, _STALLED)) if stalled else None
        if not state.write(layers.progress(), error) or stalled:
            return
    state.write(layers.progress(), results[0])


def _fetch(
    client: docker.APIClient, records: RegistryRecords, pull: Pull, on_event: Callable[[Mapping[str, Any]], None]
) -> None:
    """Pull an image; what is pulled with a password is private from then on. Raises :class:`ImagePullError`."""
    registry, repository = registry_of(pull.name), repository_of(pull.name)
    try:
        login = pull.access.login(registry)
    except RegistryError as error:
        raise ImagePullError.from_error(pull.name, pull.reference, f"the registry {registry} {error}") from None
    if not login:
        pull_image(client, pull.name, pull.reference, {}, on_event)
    else:
        _fetch_private(client, records, pull, repository, login, on_event)


def _fetch_private(
    client: docker.APIClient,
    records: RegistryRecords,
    pull: Pull,
    repository: str,
    login: Mapping[str, Any],
    on_event: Callable[[Mapping[str, Any]], None],
) -> None:
    mark = records.begin_private(repository)
    try:
        pull_image(client, pull.name, pull.reference, login, on_event)
    except ImagePullError:
        # The image can be there nevertheless, without its tag.
        if not any(find_image(client, name) for name in (pull.name, pull.reference)):
            mark.discard()
        raise
    mark.keep()
    records.allow(repository, login)
