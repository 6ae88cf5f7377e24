# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A folder that is replaced as a whole: its path is a link to a folder whose name ends with a digest of the content.

A program that has resolved the link keeps its files while the folder is replaced, and until the next replacement.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path
from typing import IO

from .._model.errors import ClusterError


def is_current(path: Path, digest: str) -> bool:
    """Return whether a folder has the content with this digest. Raises :class:`ClusterError` if it is not a link."""
    if path.exists() and not path.is_symlink():
        raise ClusterError(f"{path} is not a link to a folder of this collection; move it away")
    return path.is_symlink() and path.resolve() == _version(path, digest) and path.exists()


def replace(path: Path, digest: str, archive: IO[bytes]) -> None:
    """Unpack an archive, make the path a link to it, and remove all older versions but the last.

    A run that is killed leaves the old content or the new one, and the next run removes what else it left.
    """
    previous, version = path.resolve(), _version(path, digest)
    draft = path.with_name(f"{path.name}-new")
    shutil.rmtree(draft, ignore_errors=True)
    _unpack(archive, draft)
    shutil.rmtree(version, ignore_errors=True)  # not the current one, unless the link is broken
    os.sync()  # an empty file after a crash would be taken for the content
    draft.rename(version)
    _link(path, version)
    for other in path.parent.glob(f"{path.name}-*"):
        if other not in (version, previous):
            shutil.rmtree(other)


def _version(path: Path, digest: str) -> Path:
    return path.parent.resolve() / f"{path.name}-{digest[:16]}"


def _unpack(archive: IO[bytes], folder: Path) -> None:
    """Write the files of an archive, readable for everybody, writable for the owner."""
    _make_folder(folder)
    with tarfile.open(fileobj=archive) as packed:
        for entry in packed:
            path = folder / entry.name
            if os.path.isabs(entry.name) or ".." in path.parts or not entry.isfile():
                raise ClusterError(f"the archive has an entry {entry.name!r} that is no file below its folder")
            for parent in reversed(path.relative_to(folder).parents[:-1]):
                _make_folder(folder / parent)
            content = packed.extractfile(entry)
            if content is None:
                raise ClusterError(f"the archive has no content of {entry.name!r}")
            with path.open("wb") as file:
                shutil.copyfileobj(content, file)
            path.chmod(entry.mode & 0o755)


def _make_folder(folder: Path) -> None:
    """Create a folder if it is missing, whatever the umask is."""
    if not folder.is_dir():
        folder.mkdir()
        folder.chmod(0o755)


def _link(path: Path, target: Path) -> None:
    """Make a path a link, atomically."""
    draft = path.with_name(f"{path.name}-link")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target.name)
    draft.replace(path)
