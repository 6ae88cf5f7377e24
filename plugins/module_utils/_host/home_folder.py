# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes and removes the folder of sessions' homes, which the link ``homes`` in the state of the agent leads to."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

from .._model.change import Change
from .._model.errors import ClusterError
from .._model.mounts import is_within
from .store import Store

NAME = "backendai-homes"

MOUNT_UNIT = "backendai-homes-mount.service"

# Units have it.
_PATH = re.compile(r"(/[\w.@+-]+)+", re.ASCII)

_CONTENTS = {"lost+found", "removed", "sessions"}


class HomeFolderError(ClusterError):
    """The homes of sessions cannot be in a folder. The message is one sentence."""


def choose_folder(option: str, data_root: str) -> Path:
    """Return ``agent_home_path``, by default a folder beside the engine's data, or in it if that is a file system."""
    if option:
        return Path(option)
    data = Path(data_root).resolve()
    same = data.parent.stat().st_dev == data.stat().st_dev
    return (data.parent if same else data) / NAME


def prepare_folder(store: Store, folder: Path, *, check_mode: bool) -> list[Change]:
    """Make the folder, and lead the link there; return the changes. Raises :class:`HomeFolderError`."""
    _check(store, folder)
    before = _linked(store)
    changes = []
    if before and before != folder:
        if store.held_ids():
            raise HomeFolderError(
                f"agent_home_path: {folder} is not where the homes of this agent's sessions are, which is {before}; end"
                " its sessions first (backendai.cluster.drain_agents), or keep that path"
            )
        changes += remove_folder(store, check_mode=check_mode)
        before = None
    parts = [folder, folder / "sessions", folder / "removed"]
    changes += [Change(f"folder {path}", None, "mode 0700") for path in parts if not _is_private(path)]
    if before is None:
        changes.append(Change(f"link {store.homes_link}", None, str(folder)))
    if not check_mode:
        for path in parts:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chown(path, 0, 0)
            path.chmod(0o700)
        if before is None:
            store.homes_link.unlink(missing_ok=True)
            store.homes_link.symlink_to(folder)
    return changes


def remove_folder(store: Store, *, check_mode: bool) -> list[Change]:
    """Remove the folder and the link, if there are any; return the changes."""
    folder = _linked(store)
    if folder is None:
        return []
    if not check_mode:
        # If there is one: a second mount of the folder on itself. A file system that operators have there stays.
        subprocess.run(["systemctl", "stop", MOUNT_UNIT], check=False, capture_output=True)
        homes = [str(path) for path in (folder / "sessions", folder / "removed") if path.exists()]
        if homes:
            # At any depth: Python would open a file for each level.
            subprocess.run(["rm", "-rf", "--one-file-system", "--", *homes], check=True, capture_output=True, text=True)
        if folder.is_dir() and not folder.is_mount() and not any(folder.iterdir()):
            folder.rmdir()
        store.homes_link.unlink()
    return [Change(f"folder {folder}", "homes of sessions", None)]


def shares_file_system(store: Store, folder: Path) -> bool:
    """Return whether a home that is full leaves the agent no room for its state."""
    return _existing(folder).stat().st_dev == _existing(store.root).stat().st_dev


def is_protected(folder: Path) -> bool:
    """Return whether setuid programs and device nodes in the homes have no effect; containers get what is so here."""
    needed = os.ST_NOSUID | os.ST_NODEV
    return os.statvfs(folder).f_flag & needed == needed


def _check(store: Store, folder: Path) -> None:
    path = str(folder)
    if not _PATH.fullmatch(path) or os.path.normpath(path) != path:
        raise HomeFolderError(
            f"agent_home_path: {path!r} must be an absolute path without .., of letters, digits and . _ - + @"
        )
    if is_within(path, str(store.root)) or is_within(str(store.root), path):
        raise HomeFolderError(
            f"agent_home_path: {path} and agent_state_path ({store.root}) must not be in each other: use another folder"
        )
    there = _existing(folder)
    if str(there.resolve()) != str(there) or not there.is_dir():
        raise HomeFolderError(f"agent_home_path: {there} must be a folder, and no symbolic link may lead there")
    if os.statvfs(there).f_flag & os.ST_NOEXEC:
        raise HomeFolderError(
            f"agent_home_path: the file system of {path} is mounted noexec, so sessions could not run programs in their"
            " homes: mount it with exec, or use another folder"
        )
    others = sorted({*os.listdir(folder)} - _CONTENTS) if there == folder else []
    if others:
        raise HomeFolderError(
            f"agent_home_path: {path} has other contents ({', '.join(others[:3])}): use a folder of its own"
        )


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.parents) if os.path.lexists(path))


def _linked(store: Store) -> Path | None:
    """Return where the link leads; ``None`` without one."""
    try:
        return Path(os.readlink(store.homes_link))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_private(path: Path) -> bool:
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (0, 0, 0o700)
