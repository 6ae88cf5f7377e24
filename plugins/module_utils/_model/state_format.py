# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The format of state files: JSON with a version, so that a release detects files that another one has written."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Generic, TypeVar

from .plain_data import from_plain, to_plain
from .strict_json import parse_json

T = TypeVar("T")

VERSION = 3
"""The version of every file. Before 0.2.0, kinds of files had the versions 1 and 2, or none."""


@dataclasses.dataclass(frozen=True)
class StateFormat(Generic[T]):
    """The format of one kind of files, with the content ``kind``, a dataclass; errors call it ``subject``."""

    subject: str
    kind: type[T]

    def dump(self, content: T, indent: int | None = None) -> str:
        """Return the text of a file."""
        return json.dumps({"version": VERSION, **to_plain(content)}, indent=indent)

    def load(self, text: str | bytes) -> T:
        """Return the content of a file. Raises :class:`ValueError`, one phrase without the file's values."""
        return from_plain(self.kind, self.load_plain(text), self.subject)

    def load_plain(self, text: str | bytes) -> dict[str, Any]:
        """Return the content of a file as plain data, whose fields are not checked.

        Raises :class:`ValueError` as :meth:`load` does.
        """
        data = parse_json(text)
        if not isinstance(data, dict):
            raise ValueError("the content is not a mapping")
        version = data.pop("version", 1)
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise ValueError("its version is not a number from 1")
        if version < VERSION:
            raise ValueError("written before 0.2.0: see the changelog")
        if version > VERSION:
            newer = f"written by a newer release, with state version {version}"
            raise ValueError(f"{newer}: update backendai.cluster on the control node")
        return data
