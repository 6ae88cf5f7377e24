# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an agent knows about the images on it: which were pulled for sessions, and when each was needed last.

A file for each image; the time of its last change is when the image was needed last. Everything is readable by root
only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from .._model.files import write_atomically
from .._model.state_format import StateFormat

LOOKS = "looks"
"""The folder, in that of the records, of what was seen in images."""

LOOK_SUFFIXES = (".json", ".passwd", ".group")
"""The suffixes of the files in it: what each path is, and two files of the image, compressed."""


@dataclasses.dataclass(frozen=True)
class KnownImage:
    """An image by its ``id`` in the engine. ``pulled_as`` are its full names, if it came to this host with a pull.

    ``needed_at`` is when a session, or a request for one, needed it last, in seconds since the epoch.
    """

    id: str
    pulled_as: tuple[str, ...] = ()
    needed_at: float = 0.0


@dataclasses.dataclass(frozen=True)
class _Stored:
    id: str
    pulled_as: tuple[str, ...]


_FORMAT = StateFormat("the image", _Stored)


class ImageRecords:
    """The records in a folder, which is created with the first one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, image_id: str, name: str) -> None:
        """Record that an image was pulled by its full name ``name``, and was not on this host before."""
        known = self.find(image_id)
        self._write(_Stored(image_id, tuple(dict.fromkeys((*(known.pulled_as if known else ()), name)))))

    def touch(self, image_ids: Iterable[str]) -> None:
        """Record that images are needed now, if it can be written: on a full disk, sessions end nevertheless."""
        for image_id in image_ids:
            with contextlib.suppress(OSError):
                try:
                    os.utime(self._path(image_id))
                except FileNotFoundError:
                    self._write(_Stored(image_id, ()), durable=False)

    def forget(self, image_id: str) -> None:
        """Remove the record of an image that is gone, and what was seen in it."""
        for path in self._files():
            if path.stem == _stem(image_id):
                path.unlink(missing_ok=True)

    def find(self, image_id: str) -> KnownImage | None:
        """Return what is known of an image; ``None`` if nothing is. A damaged record is none, so the image stays."""
        path = self._path(image_id)
        try:
            stored = _FORMAT.load(path.read_bytes())
            return KnownImage(stored.id, stored.pulled_as, path.stat().st_mtime)
        except (OSError, ValueError):
            return None

    def keep_only(self, image_ids: Iterable[str]) -> None:
        """Remove the records of all other images, and what was seen in them: they are gone."""
        kept = set(map(_stem, image_ids))
        for path in self._files():
            if path.stem not in kept:
                path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        looks = (path for suffix in LOOK_SUFFIXES for path in (self._folder / LOOKS).glob(f"*{suffix}"))
        return [*self._folder.glob("*.json"), *looks]

    def _write(self, stored: _Stored, *, durable: bool = True) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        write_atomically(self._path(stored.id), _FORMAT.dump(stored), durable=durable)

    def _path(self, image_id: str) -> Path:
        return self._folder / f"{_stem(image_id)}.json"


def look_file(folder: Path, image_id: str, suffix: str) -> Path:
    """Return a file of what was seen in an image, given the folder of the records and one of the suffixes."""
    return folder / LOOKS / f"{_stem(image_id)}{suffix}"


def _stem(image_id: str) -> str:
    return hashlib.sha256(image_id.encode()).hexdigest()[:32]
