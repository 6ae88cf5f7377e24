# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was seen in an image that concerns the containers of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection


@dataclasses.dataclass(frozen=True)
class HomeFolder:
    """The folder ``/home/work`` of an image: its owner, its group, and its permission bits."""

    uid: int
    gid: int
    mode: int


@dataclasses.dataclass(frozen=True)
class ImageLook:
    """What was seen in an image.

    ``passwd`` and ``group`` are the texts of its own files. ``leads`` are the paths that the engine gets for those of a
    session that lead through links of the image. ``clients`` are the programs of SSH that it lacks. ``home`` is its
    own home of user ``work``, ``None`` if it has none; ``lacking`` are the folders that are missing in that for
    mounts, by their targets.
    """

    passwd: str = ""
    group: str = ""
    leads: dict[str, str] = dataclasses.field(default_factory=dict)
    clients: tuple[str, ...] = ()
    home: HomeFolder | None = None
    lacking: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def has_home(self) -> bool:
        """Whether the image has a folder ``/home/work``."""
        return self.home is not None

    def keeps_home(self, uid: int, gid: int, groups: Collection[int] = ()) -> bool:
        """Return whether the home of a session's user is the image's own: whether that user may write there."""
        if self.home is None:
            return False
        if self.home.uid == uid:
            needed = 0o300
        elif self.home.gid in (gid, *groups):
            needed = 0o030
        else:
            needed = 0o003
        return self.home.mode & needed == needed
