# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the logs of the apps of a session from the folder on its agent, whether main1 runs or not.

The engine is not asked: to read a file of a container it mounts all that the container has, follows the user's links at
that, and hangs on a pipe. The folder is the user's, who may put anything there at any time.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from typing import NamedTuple

from .._docker.logs import CHUNK_BYTES, LOG_BYTES, Allowance, LogReadError, last_lines, read_error, usual_allowance
from .._host.homes import LOG
from .._host.store import NotProvisionedError, Store
from .._model.session import MAIN1

PATH = "/var/log/backendai/{app}.log"
"""Where main1 has the log of an app."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW

# Neither a pipe nor a lease of the user on a file lets anybody wait.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK

# What opening a link, or a socket or the like, gives.
_NO_FILE = (errno.ELOOP, errno.ENXIO)


class TooLargeError(LogReadError):
    """A log is larger than what may be read now; ``size`` is in bytes."""

    def __init__(self, path: str, size: int, limit: int) -> None:
        super().__init__(f"{path} has {size} bytes, more than the limit of {limit}")
        self.size = size


class AppLogs(NamedTuple):
    """The logs of the apps of a session that has main1 on this agent."""

    store: Store
    session_id: str

    def tail(self, app: str, lines: int, size: int = LOG_BYTES) -> list[str] | None:
        """Return the last lines of a log, at most ``size`` bytes; ``None`` if it does not exist.

        Raises :class:`LogReadError` if it is not a regular file, such as a link, or cannot be read.
        """
        with self._opened(app) as file:
            if file is None:
                return None
            # One byte more says that there are others before.
            all_of_it = _size(file)
            begin = max(0, all_of_it - size - 1)
            file.seek(begin)
            return last_lines(usual_allowance().within(_chunks(file, all_of_it - begin)), lines, size)

    def read(self, app: str, add: Callable[[bytes], None], allowance: Allowance) -> bool:
        """Read a log, and return whether it exists. Raises :class:`LogReadError`.

        One that is larger than what is allowed is not read at all: :class:`TooLargeError`.
        """
        with self._opened(app) as file:
            if file is None:
                return False
            size = _size(file)
            if size > allowance.size:
                raise TooLargeError(PATH.format(app=app), size, allowance.size)
            for chunk in allowance.within(_chunks(file, size)):
                add(chunk)
            return True

    @contextmanager
    def _opened(self, app: str) -> Iterator[FileIO | None]:
        """Yield the log of an app, a regular file; ``None`` if it does not exist. Raises :class:`LogReadError`."""
        path = PATH.format(app=app)
        try:
            handle = self._open(f"{app}.log")
            if handle is None:
                yield None
                return
            with FileIO(handle) as file:
                yield file
        except OSError as error:
            if error.errno in _NO_FILE:
                raise LogReadError(f"{path} is not a regular file") from None
            raise read_error(path, OSError(error.strerror or str(error))) from None
        except NotProvisionedError as error:
            raise read_error(path, error) from None

    def _open(self, name: str) -> int | None:
        try:
            folder = os.open(self.store.homes.folder(self.session_id, MAIN1) / LOG, _FOLDER)
        except FileNotFoundError:
            return None
        try:
            handle = os.open(name, _FILE, dir_fd=folder)
        except FileNotFoundError:
            return None
        finally:
            os.close(folder)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError(errno.ENXIO, "no regular file")
        return handle


def _size(file: FileIO) -> int:
    return os.fstat(file.fileno()).st_size


def _chunks(file: FileIO, size: int) -> Iterator[bytes]:
    """Yield so many bytes in chunks, fewer if there are no more: somebody may write meanwhile."""
    while size > 0 and (chunk := file.read(min(CHUNK_BYTES, size))):
        size -= len(chunk)
        yield chunk
