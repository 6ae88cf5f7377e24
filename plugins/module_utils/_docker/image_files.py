# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Looks at files of an image through a container of it that never starts.

Nothing of the image runs, no link is followed, and no call takes longer than a time limit: an image may be made to
hang whoever looks.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from typing import Any

from .._model.errors import ClusterError, as_phrase, reason
from .._model.image_paths import DEVICE, FIFO, FILE, FOLDER, LINK, SOCKET, Entry, volume_path
from . import labels
from .sdk import docker

SECONDS = 10
"""How long the engine may take for an answer about a path, or for the next part of it."""

NAME_PREFIX = "backendai-look-"
"""The beginning of the names of these containers."""

# The bits of Go's file modes, as the engine gives them.
_KINDS = {31: FOLDER, 27: LINK, 26: DEVICE, 25: FIFO, 24: SOCKET, 19: DEVICE}

# More than what precedes the content of a file in an archive, with its extended attributes.
_HEADER_BYTES = 256 << 10

_CHUNK_BYTES = 64 << 10


class ImageLookError(ClusterError):
    """What is in an image is not known, or too large; the message is a phrase that continues the image's name."""


class ImageFiles:
    """The files of an image, through the container with this id."""

    def __init__(self, client: docker.APIClient, container: str) -> None:
        self._client, self._container = client, container

    def entry(self, path: str) -> Entry | None:
        """Return what a path is, without following a link at its end; ``None`` if it is nothing."""
        answer = self._ask("head", path)
        if answer is None:
            return None
        try:
            stat = json.loads(base64.b64decode(answer.headers["X-Docker-Container-Path-Stat"]))
            mode = int(stat["mode"])
            kind = next((kind for bit, kind in _KINDS.items() if mode & 1 << bit), FILE)
            return Entry(kind, mode & 0o777, int(stat["size"]), str(stat["linkTarget"]))
        except (KeyError, TypeError, ValueError):
            raise _unknown(path) from None

    def read(self, path: str, limit: int) -> bytes:
        """Return the content of a file of at most ``limit`` bytes."""
        with self._archive(path) as stream:
            raw = stream.read(limit + _HEADER_BYTES)
        with _opened(raw, path) as (archive, member):
            if member.size > limit:
                found = f"has {member.size} bytes in {path}, and at most {limit} are read"
                raise ImageLookError(f"{found}: build the image with a smaller file")
            content = archive.extractfile(member) if member.isreg() else None
            if content is None:
                raise _unknown(path)
            return content.read()

    def owner(self, path: str) -> tuple[int, int]:
        """Return the numbers of the user and the group that own a file or folder."""
        with self._archive(path) as stream:
            # The rest of a folder is not read.
            raw = stream.read(_HEADER_BYTES)
        with _opened(raw, path) as (_archive, member):
            return member.uid, member.gid

    @contextlib.contextmanager
    def chunks(self, path: str) -> Iterator[Iterator[bytes]]:
        """Return the archive of a file or folder, whose name is the first component of all names in it."""
        with self._archive(path) as stream:
            yield iter(lambda: stream.read(_CHUNK_BYTES), b"")

    @contextlib.contextmanager
    def _archive(self, path: str) -> Iterator[_Stream]:
        answer = self._ask("get", path)
        if answer is None:
            raise _unknown(path)
        with contextlib.closing(answer):
            yield _Stream(answer.raw, path)

    def _ask(self, method: str, path: str) -> Any:
        """Return the engine's answer about a path; ``None`` if it is nothing."""
        client: Any = self._client
        url = client._url("/containers/{0}/archive", self._container)
        try:
            answer = getattr(client, method)(url, params={"path": path}, timeout=SECONDS, stream=method == "get")
        except Exception as error:
            raise _silent(path, error) from error
        if answer.status_code == 200:
            return answer
        answer.close()
        if answer.status_code == 404:
            return None
        problem = f"cannot be judged, because the engine cannot say what {path} is (status {answer.status_code})"
        raise ImageLookError(f"{problem}: if it is a link in a circle, remove it from the image")


class _Stream:
    """The engine's archive of a path."""

    def __init__(self, raw: Any, path: str) -> None:
        self._raw, self._path = raw, path

    def read(self, size: int) -> bytes:
        """Return so many bytes, fewer at the end."""
        try:
            return bytes(self._raw.read(size, decode_content=True))
        except Exception as error:
            raise _silent(self._path, error) from error


@contextlib.contextmanager
def _opened(raw: bytes, path: str) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Yield the beginning of an archive, and its first entry."""
    try:
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r|") as archive:
            member = archive.next()
            if member is None:
                raise _unknown(path)
            yield archive, member
    except (tarfile.TarError, OSError, EOFError, ValueError):
        raise _unknown(path) from None


def _silent(path: str, error: Exception) -> ImageLookError:
    problem = f"cannot be judged, because the engine does not say what {path} is ({_cause(error, SECONDS)})"
    return ImageLookError(f"{problem}: restart the engine if that stays so")


def _cause(error: Exception, seconds: float) -> str:
    """Return why a call failed. The errors of requests and urllib3 differ between versions, but for these words."""
    return f"no answer within {seconds:g} seconds" if "timed out" in str(error) else as_phrase(reason(error))


def _unknown(path: str) -> ImageLookError:
    return ImageLookError(
        f"cannot be judged, because the engine describes {path} in a form that is not known: build the image again"
    )


@contextlib.contextmanager
def image_files(client: docker.APIClient, image: str, name: str, volumes: Iterable[str]) -> Iterator[ImageFiles]:
    """Look at the files of an image, given its id and its volumes, by absolute paths, through a container of that name.

    Raises :class:`ImageLookError`, then too if the container is gone or stays.
    """
    # Over a volume that is mounted at exactly its path, the engine makes none, which it would fill.
    mounted = {volume_path(path): "" for path in volumes}
    try:
        container = client.create_container(
            image,
            name=name,
            entrypoint=["/never"],
            command=[],
            use_config_proxy=False,
            # All that the image says about itself remains, but for the owner.
            labels={labels.OWNER: labels.LOOK_VALUE},
            host_config=client.create_host_config(network_mode="none", tmpfs=mounted),
        )["Id"]
    except OSError as error:
        cause = _cause(error, client.timeout)
        raise ImageLookError(f"cannot be judged, because no container of it can be created ({cause})") from error
    files = ImageFiles(client, container)
    try:
        yield files
        # Of a container that is gone, everything would be nothing.
        if files.entry("/") is None:
            raise ImageLookError(f"cannot be judged, because its container {name} was removed meanwhile: try it again")
    finally:
        _remove(client, name)


def _remove(client: docker.APIClient, name: str) -> None:
    try:
        remove_look(client, name)
    except OSError as error:
        problem = f"cannot be judged, because its container {name}, which never ran, cannot be removed"
        raise ImageLookError(f"{problem} ({_cause(error, client.timeout)})") from error


def remove_look(client: docker.APIClient, name: str) -> None:
    """Remove the container of that name, by which somebody looked at an image. Raises :class:`OSError`."""
    with contextlib.suppress(docker.errors.NotFound):
        client.remove_container(name, force=True, v=True)
