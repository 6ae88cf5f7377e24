# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files ``/etc/passwd`` and ``/etc/group`` of a container: those of its image, with user ``work``.

They are data that an image chose. The engine and programs look names up in them, so what would make them take a number
for a name, or fail, is left out. Names give nobody rights: the container runs as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

USER = "work"
HOME = "/home/work"
LOGIN_SHELL = "/opt/backendai/shell/bash"
"""The login shell of user work, of the kit: bash of the image if it has that, or its sh, or that of the kit."""
TTY = 5
"""The group that terminals get, as Docker mounts them; without it a login gets none."""

MAX_LINE = 1024
"""Longer lines are left out, in characters: runc starts no container with one of 64 KiB."""

MAX_ID = (1 << 32) - 2
"""The largest number of a user or group in Linux."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\$?\Z")
_NUMBER = re.compile(r"[0-9]{1,10}\Z")


def passwd_text(image_text: str, uid: int, gid: int, shell: str) -> str:
    """Return the content of ``/etc/passwd``: that of the image, but for ``work`` and others with its number."""
    lines = [
        ":".join(fields)
        for fields in _entries(image_text, 7)
        if fields[0] != USER and int(fields[2]) != uid and _is_number(fields[3])
    ]
    if not any(line.startswith("root:") for line in lines):
        lines.insert(0, "root:x:0:0::/root:/bin/sh")
    lines.append(f"{USER}:x:{uid}:{gid}::{HOME}:{shell}")
    return "".join(f"{line}\n" for line in lines)


def group_text(image_text: str, gid: int, groups: Mapping[int, str]) -> str:
    """Return the content of ``/etc/group``: that of the image, with the groups of ``work`` and that of terminals.

    ``groups`` are the names of supplementary groups, by number.
    """
    entries = [fields for fields in _entries(image_text, 4) if fields[0] not in ("tty", USER)]
    named = {int(fields[2]) for fields in entries}
    taken = {fields[0] for fields in entries}
    lines = [":".join(fields) for fields in entries]
    if "root" not in taken:
        lines.insert(0, "root:x:0:")
    lines.append(f"tty:x:{TTY}:")
    for number, name in {gid: USER, **groups}.items():
        if number not in named:
            own = name if _NAME.match(name) and name not in taken else f"group{number}"
            lines.append(f"{own}:x:{number}:")
            taken.add(own)
    return "".join(f"{line}\n" for line in lines)


def has_numeric_names(group_text_of_image: str) -> bool:
    """Return whether a group file has names that read as numbers, which the engine would prefer to the numbers.

    It takes a line of a name alone, too, and then the number 0.
    """
    return any(re.match(r"[+-]?[0-9]+(:|\Z)", line) for line in _lines(group_text_of_image))


def _lines(text: str) -> list[str]:
    """Return the lines as the engine and runc see them: only newlines end them, and space around them is nothing."""
    return [line.strip() for line in text.split("\n")]


def _entries(text: str, count: int) -> Iterator[list[str]]:
    """Yield the fields of each line of a file that has a proper name and number, and that all programs read alike."""
    for line in _lines(text):
        fields = line.split(":")
        if (
            len(line) <= MAX_LINE
            and line.isprintable()
            and len(fields) == count
            and _NAME.match(fields[0])
            and _is_number(fields[2])
        ):
            yield fields


def _is_number(text: str) -> bool:
    """Return whether a field is a number of a user or group: some programs take a larger one for another number."""
    return bool(_NUMBER.match(text)) and int(text) <= MAX_ID
