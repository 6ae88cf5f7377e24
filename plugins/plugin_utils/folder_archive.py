# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Folders of the control node as one archive, to be unpacked on a host."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from .host_program import COLLECTION

#: What a manager needs of this collection to run its playbooks.
RUNTIME = ("LICENSE", "MANIFEST.json", "FILES.json", "galaxy.yml", "meta", "playbooks", "plugins", "roles")
NAMESPACE = "ansible_collections/backendai/cluster"


def pack_collection() -> bytes:
    """Return an archive of this collection, as it is installed here, below the folder that Ansible searches."""
    return _pack(COLLECTION, RUNTIME, f"{NAMESPACE}/")


def pack_folder(folder: Path) -> bytes:
    """Return an archive of a folder. Raises :class:`OSError` if it cannot be read."""
    return _pack(folder, sorted(path.name for path in folder.iterdir()), "")


def _pack(folder: Path, names: Iterable[str], prefix: str) -> bytes:
    """Return an archive of some files and folders; the same content always gives the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in _iter_files(folder, names):
            content = path.read_bytes()
            entry = tarfile.TarInfo(f"{prefix}{path.relative_to(folder).as_posix()}")
            entry.size = len(content)
            entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _iter_files(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """Yield the regular files of some entries of a folder, without hidden ones and what Python has compiled."""
    for name in names:
        path = folder / name
        if path.is_dir():
            if not path.name.startswith(".") and path.name != "__pycache__":
                yield from _iter_files(path, sorted(entry.name for entry in path.iterdir()))
        elif path.is_file() and not path.name.startswith("."):
            yield path
