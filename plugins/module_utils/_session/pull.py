# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pulls an image in a background process, for as long as it is wanted: a session is claimed, or a run asks again.

The process writes its state into a folder of the session, or of the image. It holds a lock until it ends: that shows
whether it still runs, and keeps a run that takes the session over from starting a second one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Union

from .._docker.client import connect
from .._docker.images import ImagePullError, Progress, PullLayers, disk_usage, find_image, image_ids, pull_image
from .._docker.registry import RegistryError
from .._docker.sdk import docker
from .._host.deadline import Deadline, deadline_in
from .._host.image_records import ImageRecords
from .._host.processes import daemonize
from .._host.registry_records import RegistryRecords
from .._host.store import Store
from .._model.files import locked, write_atomically
from .._model.images import ImageIdentity, full_name, registry_of, repository_of
from .._model.state_format import StateFormat
from .image_access import ImageAccess

# Interval at which the background process checks the claim and writes the progress, in seconds.
POLL_SECONDS = 0.5


# Seconds without progress from the engine after which a pull fails.
STALL_SECONDS = 600

# Size of the file of a pull, in bytes: enough for the longest failure, which may become known on a full disk.
STATE_SIZE = 16384

_STALLED = f"no progress for {STALL_SECONDS} seconds"


@dataclasses.dataclass(frozen=True)
class Pull:
    """An image to pull: its ``name``, the ``reference`` that is pulled for it, and the logins that may be used."""

    name: str
    reference: str
    access: ImageAccess = dataclasses.field(default_factory=ImageAccess)


@dataclasses.dataclass(frozen=True)
class PullStatus:
    """The state of a pull: the ``image`` and its ``size`` once it exists, else the ``progress``.

    ``started`` is whether it was just started.
    """

    image: ImageIdentity | None
    progress: Progress = dataclasses.field(default_factory=Progress)
    started: bool = False
    size: int = 0


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The run with that ``nonce`` wants an image, ``until`` then unless it asks again."""

    nonce: str
    until: Deadline


_WANTED = StateFormat("the wish for an image", Wanted)


@dataclasses.dataclass(frozen=True)
class ForSession:
    """Images are wanted as long as a session is claimed; its ``nonce`` is that of the run that claimed it last."""

    store: Store
    session_id: str
    nonce: str

    def folder(self, _name: str) -> Path:
        """Return the folder for the state of the pull of an image."""
        return self.store.folder(self.session_id) / "pulls"

    @contextlib.contextmanager
    def wanted(self, _name: str) -> Iterator[str | None]:
        """Keep the session as it is, and yield the nonce of its run; ``None`` if it is no longer claimed."""
        with self.store.session_lock(self.session_id):
            session = self.store.session(self.session_id)
            yield None if session is None or session.expired else session.nonce

    def forget(self, _name: str) -> None:
        """Keep the state of a pull: it goes with the session."""


@dataclasses.dataclass(frozen=True)
class ForRun:
    """An image is wanted, before any session needs it, as long as the run with that ``nonce`` asks for it."""

    store: Store
    nonce: str

    def folder(self, name: str) -> Path:
        """Return the folder for the state of the pull of an image."""
        return self.store.images_folder / "pulls" / _stem(name)

    def ask(self, name: str, seconds: float) -> None:
        """Want an image for that many seconds from now."""
        folder = self.folder(name)
        for path in (self.store.images_folder, folder.parent, folder):
            path.mkdir(mode=0o700, exist_ok=True)
        wanted = Wanted(self.nonce, deadline_in(seconds))
        write_atomically(self._path(name), _WANTED.dump(wanted), durable=False)

    @contextlib.contextmanager
    def wanted(self, name: str) -> Iterator[str | None]:
        """Yield the nonce of the run that wants an image; ``None`` if none does any more."""
        wanted = None
        with contextlib.suppress(OSError, ValueError):
            wanted = _WANTED.load(self._path(name).read_bytes())
        yield None if wanted is None or wanted.until.passed else wanted.nonce

    def forget(self, name: str) -> None:
        """Remove the state of a pull that has ended."""
        shutil.rmtree(self.folder(name), ignore_errors=True)

    def _path(self, name: str) -> Path:
        return self.folder(name) / "wanted"


Purpose = Union[ForSession, ForRun]


def ensure_pull(client: docker.APIClient, docker_host: str, purpose: Purpose, pull: Pull) -> PullStatus:
    """Start a pull if the image is missing, and return its status.

    Raises :class:`ImagePullError` when it has failed, or its process was killed.
    """
    state = _PullState(purpose, pull)
    # The lock is tried before the image is read: after a pull that ends in between, the image exists.
    with state.locked() as lock:
        image = find_image(client, pull.name)
        if image:
            if lock is not None:
                purpose.forget(pull.name)
            return PullStatus(image.identity, size=disk_usage(client, image))
        if lock is None:
            return PullStatus(None, state.progress())
        failure = state.failure()
        if failure:
            state.clear()
            raise ImagePullError(failure)
        state.write(Progress())
        daemonize(lambda: _pull_worker(docker_host, state, purpose.store, pull), lock)
    return PullStatus(None, started=True)


def _stem(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


class _PullState:
    """The state of a pull in the folder of its purpose."""

    def __init__(self, purpose: Purpose, pull: Pull) -> None:
        self._purpose, self._pull = purpose, pull
        folder, stem = purpose.folder(pull.name), _stem(pull.name)
        self._lock, self._path = folder / f"{stem}.lock", folder / f"{stem}.json"

    def locked(self) -> AbstractContextManager[int | None]:
        """Hold the lock of the pull, an open file; ``None`` while another process holds it."""
        self._lock.parent.mkdir(mode=0o700, exist_ok=True)
        return locked(self._lock, timeout=0, create=True)

    def write(self, progress: Progress, failed: str | None = None) -> bool:
        """Write the progress and the failure of the pull; return whether the image is still wanted.

        Raises :class:`OSError` if that cannot be written.
        """
        with self._purpose.wanted(self._pull.name) as nonce:
            if nonce is None:
                return False
            state = {"nonce": nonce, "failed": failed, "progress": dataclasses.asdict(progress)}
            if state != self._read():
                self._store(json.dumps(state).ljust(STATE_SIZE))
            return True

    def _store(self, content: str) -> None:
        try:
            write_atomically(self._path, content)
        except OSError:
            if not self._path.exists():
                raise
            # On a full disk there is still the room that the file has.
            with self._path.open("r+") as stream:
                stream.write(content)

    def progress(self) -> Progress:
        """Return the last progress that was written."""
        return Progress(**self._read().get("progress", {}))

    def failure(self) -> str:
        """Return why the ended pull failed; empty if there was none, or it belonged to an earlier run."""
        state = self._read()
        if state.get("nonce") != self._purpose.nonce:
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
        # On a full disk it is not replaced at once.
        except (FileNotFoundError, ValueError):
            return {}
        return state


def _pull_worker(docker_host: str, state: _PullState, store: Store, pull: Pull) -> None:
    """Pull and write the progress; return when the pull has ended, or the image is no longer wanted.

    The engine aborts a pull when the connection that requested it closes, which it does when this process ends.
    """
    layers = PullLayers()
    results: list[str] = []
    last_event = [time.monotonic()]

    def on_event(line: Mapping[str, Any]) -> None:
        last_event[0] = time.monotonic()
        layers.update(line)

    def note(failed: str | None) -> bool:
        try:
            return state.write(layers.progress(), failed)
        except OSError:
            # The pull needs the engine's disk, not that of its state.
            return True

    def fetch() -> None:
        try:
            _fetch(connect(docker_host), store, pull, on_event)
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
        if not note(error) or stalled:
            return
    note(results[0])


def _fetch(client: docker.APIClient, store: Store, pull: Pull, on_event: Callable[[Mapping[str, Any]], None]) -> None:
    """Pull an image; what is pulled with a password is private from then on. Raises :class:`ImagePullError`.

    What this host did not have before is recorded, so that it may be removed again.
    """
    before = image_ids(client)
    registry, repository = registry_of(pull.name), repository_of(pull.name)
    try:
        login = pull.access.login(registry)
    except RegistryError as error:
        raise ImagePullError.from_error(pull.name, pull.reference, f"the registry {registry} {error}") from None
    if not login:
        pull_image(client, pull.name, pull.reference, {}, on_event)
    else:
        _fetch_private(client, RegistryRecords(store.registries_folder), pull, repository, login, on_event)
    image = find_image(client, pull.name)
    if image and image.id not in before:
        ImageRecords(store.images_folder).add(image.id, full_name(pull.name))


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
