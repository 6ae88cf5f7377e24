# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The format of state files: JSON with a version, so that a release reads older files, and detects newer ones.

A release that changes the format of a file adds a migration, a function of plain data, to its :class:`StateFormat`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from .plain_data import from_plain, to_plain
from .strict_json import parse_json

T = TypeVar("T")

Migration = Callable[[dict[str, Any]], dict[str, Any]]
"""Returns the content of a file of one version in the format of the next."""


@dataclasses.dataclass(frozen=True)
class StateFormat(Generic[T]):
    """The format of one kind of files, with the content ``kind``, a dataclass; errors call it ``subject``.

    The first of ``migrations`` is that of version 1, so their number plus 1 is the newest version.
    """

    subject: str
    kind: type[T]
    migrations: tuple[Migration, ...] = ()

    def dump(self, content: T, version: int = 0, indent: int | None = None) -> str:
        """Return the text of a file; by default in the newest version.

        An older ``version`` is for content that its releases understand as well.
        """
        newest = len(self.migrations) + 1
        return json.dumps({"version": version or newest, **to_plain(content)}, indent=indent)

    def load(self, text: str | bytes) -> T:
        """Return the content of a file. Raises :class:`ValueError`, one phrase without the file's values."""
        return from_plain(self.kind, self.load_plain(text), self.subject)

    def load_plain(self, text: str | bytes) -> dict[str, Any]:
        """Return the content of a file as plain data in the newest version, whose fields are not checked.

        Raises :class:`ValueError` as :meth:`load` does.
        """
        data = parse_json(text)
        if not isinstance(data, dict):
            raise ValueError("the content is not a mapping")
        # Files of the first releases have no version.
        version = data.pop("version", 1)
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise ValueError("its version is not a number from 1")
        if version > len(self.migrations) + 1:
            newer = f"written by a newer release, with state version {version}"
            raise ValueError(f"{newer}: update backendai.cluster on the control node")
        try:
            for migrate in self.migrations[version - 1 :]:
                data = migrate(data)
        except (LookupError, TypeError, AttributeError):
            raise ValueError(f"it does not match its version, {version}") from None
        return data
