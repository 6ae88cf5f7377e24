# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an agent has seen in images, so that it looks at each once, and the containers by which it is looking now.

The records go with those of :class:`.image_records.ImageRecords` when an image is gone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .._model.files import locked, write_atomically
from .._model.image_look import HomeFolder
from .._model.image_paths import Entry
from .._model.state_format import StateFormat
from .image_records import LOOK_SUFFIXES, LOOKS, look_file

ABANDONED_SECONDS = 60
"""How old the note of a look must be that nobody holds any more: it is locked after it was made."""


_ACCOUNT_SUFFIXES = LOOK_SUFFIXES[1:]


@dataclasses.dataclass(frozen=True)
class Seen:
    """What was seen in an image by its ``id``: paths and what they are, ``None`` for nothing, and its home."""

    id: str
    entries: dict[str, Entry | None] = dataclasses.field(default_factory=dict)
    home: HomeFolder | None = None


class Accounts(NamedTuple):
    """The contents of the files ``/etc/passwd`` and ``/etc/group`` of an image."""

    passwd: bytes
    group: bytes


_FORMAT = StateFormat("what was seen in the image", Seen)


class LookRecords:
    """The records in the folder of what is known about images, which are readable by root only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, image_id: str) -> Seen:
        """Return what was seen in an image; nothing if its record is missing or damaged."""
        try:
            seen = _FORMAT.load(look_file(self._folder, image_id, ".json").read_bytes())
        except (OSError, ValueError):
            return Seen(image_id)
        return seen if seen.id == image_id else Seen(image_id)

    def accounts(self, image_id: str) -> Accounts | None:
        """Return the files of an image with its users and groups; ``None`` if they were not read, or are damaged."""
        try:
            paths = (look_file(self._folder, image_id, suffix) for suffix in _ACCOUNT_SUFFIXES)
            return Accounts(*(zlib.decompress(path.read_bytes()) for path in paths))
        except (OSError, zlib.error):
            return None

    def save(self, seen: Seen, accounts: Accounts | None) -> None:
        """Record what was seen in an image. Its files are compressed: it decides how large they are, up to a limit."""
        self._make_folder()
        for suffix, content in zip(_ACCOUNT_SUFFIXES, accounts or ()):
            write_atomically(look_file(self._folder, seen.id, suffix), zlib.compress(content, 1), durable=False)
        write_atomically(look_file(self._folder, seen.id, ".json"), _FORMAT.dump(seen), durable=False)

    @contextlib.contextmanager
    def looking(self, prefix: str) -> Iterator[str]:
        """Yield a new name with that prefix for a container, which is noted until the block ends without an error."""
        self._make_folder()
        note = self._folder / LOOKS / f"{prefix}{uuid.uuid4().hex}"
        with locked(note, 0, create=True):
            yield note.name
            note.unlink()

    def abandoned(self, prefix: str, now: float) -> list[str]:
        """Return the names that were noted by processes that have ended, at ``now`` in seconds since the epoch."""
        notes = sorted((self._folder / LOOKS).glob(f"{prefix}*"))
        return [note.name for note in notes if _is_abandoned(note, now)]

    def forget_look(self, name: str) -> None:
        """Remove the note of a container that is gone."""
        (self._folder / LOOKS / name).unlink(missing_ok=True)

    def _make_folder(self) -> None:
        for folder in (self._folder, self._folder / LOOKS):
            folder.mkdir(mode=0o700, exist_ok=True)


def _is_abandoned(note: Path, now: float) -> bool:
    try:
        # A clock that was set back makes none young for ever.
        if abs(now - note.stat().st_mtime) < ABANDONED_SECONDS:
            return False
        with locked(note, 0) as handle:
            return handle is not None
    except FileNotFoundError:
        return False
