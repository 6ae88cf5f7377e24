# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folders of sessions on the engine's file system: what containers write outside of their images.

``sessions/<id>/<hostname>`` has folders of the session's user, which a repair keeps: ``home`` is mounted at
``/home/work``, unless the home of the image is kept, ``own`` at ``/var/lib/backendai``, ``log`` at
``/var/log/backendai``. All above them is root's, so that nobody else gets there. Below them everything is the user's:
no link is followed, and nothing is believed.

At the end of a session its folder is renamed into ``removed``, however much is in it, and removed later.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from .._model.accounts import HOME as HOME_TARGET
from .._model.errors import ClusterError
from .._model.mounts import is_within
from .._model.session import is_hostname, is_session_id

HOME, OWN, LOG = "home", "own", "log"
"""The folders of a container."""

NEW = "home.new"
"""A home that is not in place yet, and may not be complete."""

_MODES = {HOME: 0o700, OWN: 0o700, LOG: 0o755}

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class MountParentError(ClusterError):
    """A folder cannot be mounted below ``/home/work``: there is something else. The message is one sentence."""


class Homes:
    """The folders of sessions below ``root``, which provisioning has made."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)
        self._sessions, self._removed = self.root / "sessions", self.root / "removed"

    def folder(self, session_id: str, hostname: str) -> Path:
        """Return the folder of a container; other ids and names are rejected, as they could lead elsewhere."""
        if not is_hostname(hostname):
            raise ValueError(f"hostname: {hostname!r} is not the name of a container")
        return self._session_folder(session_id) / hostname

    def home(self, session_id: str, hostname: str) -> Path:
        """Return where the home of a container is, if it has one here."""
        return self.folder(session_id, hostname) / HOME

    def _session_folder(self, session_id: str) -> Path:
        if not is_session_id(session_id):
            raise ValueError(f"session_id: {session_id!r} is not the id of a session")
        return self._sessions / session_id

    def make(self, session_id: str, hostname: str, uid: int, gid: int) -> None:
        """Make the folders of a container that are missing, but for its home."""
        folder = self._make_private(session_id, hostname)
        for name in (OWN, LOG):
            _make_owned(folder / name, _MODES[name], uid, gid)

    def exists(self, session_id: str, hostname: str) -> bool:
        """Return whether a container has a home here, a complete one."""
        return self.home(session_id, hostname).is_dir()

    def discard(self, session_id: str, hostname: str) -> bool:
        """Take the home of a container away, to be removed later; return whether there was one."""
        return self._put_away(self.home(session_id, hostname), session_id)

    def make_new(self, session_id: str, hostname: str, uid: int, gid: int) -> Path:
        """Make an empty home beside that of a container, and return it; :meth:`renew` puts it in place."""
        new = self._make_private(session_id, hostname) / NEW
        # That of a copy that was killed, whose process may not have ended yet, or of a repair that was refused.
        self._put_away(new, session_id)
        _make_owned(new, _MODES[HOME], uid, gid)
        return new

    def copy_new(
        self, session_id: str, hostname: str, stream: Iterator[bytes], uid: int, gid: int, *, image: str
    ) -> None:
        """Make a home beside that of a container from the archive of its image's, as the engine sends it.

        It is complete or not there. Raises :class:`HomeTooLargeError` and :class:`HomeCopyError`, and what ``stream``
        raises.
        """
        # Only few images need it, and the import takes milliseconds.
        from .home_copy import copy_home

        new = self.make_new(session_id, hostname, uid, gid)
        try:
            copy_home(stream, new, uid, gid, image)
        except BaseException:
            self._put_away(new, session_id)
            raise

    def renew(self, session_id: str, hostname: str) -> None:
        """Put the new home of a container in place of the present one, if there is one, which is removed later."""
        self.discard(session_id, hostname)
        (self.folder(session_id, hostname) / NEW).rename(self.home(session_id, hostname))

    def make_mount_parents(self, session_id: str, hostname: str, targets: Collection[str], uid: int, gid: int) -> None:
        """Make the folders in a home that mounts at these paths of the container need, as the user's.

        The engine would make them as root, and follow a link that the user has put there. So this is called before each
        start. Raises :class:`MountParentError` if there is anything but a folder.
        """
        home = self.home(session_id, hostname)
        inside = [target for target in targets if target != HOME_TARGET and is_within(target, HOME_TARGET)]
        for target in sorted(inside):
            if any(target != other and is_within(target, other) for other in inside):
                continue  # It is in the folder that is mounted there.
            try:
                _make_components(home, os.path.relpath(target, HOME_TARGET).split("/"), uid, gid)
            except _NoFolderError as error:
                path = os.path.join(HOME_TARGET, *error.components)
                raise MountParentError(
                    f"session_mounts: {path} in {hostname} is {error.kind}, and has to be a folder, because {target} is"
                    " mounted: repair the session with a fresh home (session_fresh_home)"
                ) from None

    def _make_private(self, session_id: str, hostname: str) -> Path:
        """Return the folder of a container, made together with those above, which are root's."""
        folder = self.folder(session_id, hostname)
        for path in (self._sessions, folder.parent, folder):
            path.mkdir(mode=0o700, exist_ok=True)
        return folder

    def session_ids(self) -> list[str]:
        """Return the ids of the sessions that have folders here, sorted."""
        return sorted(name for name in _names(self._sessions) if is_session_id(name))

    def retire(self, session_id: str) -> bool:
        """Take the folders of a session away, to be removed later; return whether there were any.

        Its containers must have been removed.
        """
        return self._put_away(self._session_folder(session_id), session_id)

    def _put_away(self, path: Path, session_id: str) -> bool:
        try:
            path.rename(self._removed / f"{session_id}-{secrets.token_hex(8)}")
        except FileNotFoundError:
            return False
        return True

    @property
    def removed(self) -> Path:
        """The folder of what is to be removed."""
        return self._removed

    def has_retired(self) -> bool:
        """Return whether anything is to be removed."""
        return bool(_names(self._removed))


class _NoFolderError(Exception):
    """What should be a folder is another ``kind``; ``components`` lead there."""

    def __init__(self, components: list[str], kind: str) -> None:
        super().__init__(kind)
        self.components, self.kind = components, kind


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _make_owned(path: Path, mode: int, uid: int, gid: int) -> None:
    """Make a folder in one of root's; one that is the user's already is left as it is."""
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_uid != uid:
        path.chmod(mode)
        # Last: whose it is says that it is complete.
        os.chown(path, uid, gid)


def _make_components(home: Path, components: Iterable[str], uid: int, gid: int) -> None:
    """Make folders, each in the one before, and open each without following a link. Raises :class:`_NoFolderError`."""
    here: list[str] = []
    folder = os.open(home, _FOLDER)
    try:
        for name in components:
            here.append(name)
            new = _make_in(folder, name)
            try:
                inner = os.open(name, _FOLDER, dir_fd=folder)
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                    raise
                raise _NoFolderError(here, _kind(folder, name)) from None
            os.close(folder)
            folder = inner
            if new:
                os.fchown(folder, uid, gid)
    finally:
        os.close(folder)


def _make_in(folder: int, name: str) -> bool:
    """Make a folder in an open one; return whether it is new."""
    try:
        os.mkdir(name, 0o755, dir_fd=folder)
    except FileExistsError:
        return False
    return True


def _kind(folder: int, name: str) -> str:
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    return "a symbolic link" if stat.S_ISLNK(mode) else "no folder"
