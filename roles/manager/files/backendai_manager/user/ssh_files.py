# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ssh reads in the user's folder: the ways to sessions, their host keys, and one line of the user's own file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import subprocess
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from ..errors import CommandError
from ..files import read_regular_file
from . import ssh_config
from .ssh_config import INCLUDE, MAIN, UNWANTED, SshAccess

MAX_FILE = 1 << 26
SECONDS = 5
"""How long an address may take to answer."""


class SshFiles:
    """The files of a folder such as ``~/.ssh``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, folder / ssh_config.CONFIG_NAME

    def sessions(self) -> list[SshAccess]:
        """Return the sessions in the configuration."""
        return ssh_config.parse_config(_read(self.config))

    def find(self, word: str) -> SshAccess | None:
        """Return the session of a name or an id, if its address is known."""
        known = [access for access in self.sessions() if access.host and MAIN in access.host_keys]
        return next((access for access in known if word in (access.id, access.name)), None)

    def change(self, new: Sequence[SshAccess] = (), gone: Collection[str] = (), *, unwanted: bool = False) -> None:
        """Write sessions, in place of others of their names, and remove those of the ids that are ``gone``."""
        names, ids = {access.name for access in new}, {*gone, *(access.id for access in new)}
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        known_hosts = self.folder / ssh_config.KNOWN_HOSTS_NAME
        with known_hosts.with_suffix(".lock").open("w") as lock:
            # Another command may add its sessions now. A file system without locks has to do without.
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            before = _read(self.config)
            kept = [each for each in ssh_config.parse_config(before) if each.id not in ids and each.name not in names]
            now = [*kept, *new]
            text = ssh_config.render_config(now, self.folder, unwanted=unwanted or UNWANTED in before)
            lines = [f"{each.alias(hostname)} {key}\n" for each in now for hostname, key in each.host_keys.items()]
            _write(known_hosts, "".join(lines).encode())
            _write(self.config, text.encode())

    def include(self, confirm: Callable[[str], bool] | None, *, later: bool = False) -> str:
        """Have the user's own configuration include that of the sessions, and return what there is to say.

        The user is asked once, by ``confirm``, for a line in a file that exists, unless it is none to be replaced, or
        this is to be asked ``later``.
        """
        path, line = self.folder / "config", f"{INCLUDE}\n".encode()
        if not self.config.is_file():
            return ""
        if not os.path.lexists(path):
            _write(path, line)
            return f"{path} is new, with the line {INCLUDE}: ssh, rsync and editors know sessions by their names."
        if later or ssh_config.includes(_read(path)) or UNWANTED in _read(self.config):
            return ""
        status = path.lstat()
        own = stat.S_ISREG(status.st_mode) and (status.st_uid, status.st_nlink) == (os.geteuid(), 1)
        own = own and bool(status.st_mode & stat.S_IWUSR)
        if confirm and own and confirm(f"Begin {path} with {INCLUDE}, so that ssh knows sessions by their names?"):
            _write(path, line + path.read_bytes(), stat.S_IMODE(status.st_mode))
            return ""
        if confirm:
            self.change(unwanted=True)
        return "" if confirm and own else f"Begin {path} with {INCLUDE}, so that ssh knows sessions by their names."


def has_host_key(access: SshAccess) -> bool:
    """Return whether a session is still at its address, of which another one may have the port now."""
    words = ["ssh-keyscan", "-T", str(SECONDS), "-t", "ed25519", "-p", str(access.port), access.host]
    found = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False).stdout
    return f" {access.host_keys[MAIN]}\n".encode() in found


def _read(path: Path) -> str:
    try:
        return read_regular_file(path, MAX_FILE).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CommandError(f"{path} cannot be read: {reason}.") from None


def _write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file at once; by default, only the user reads it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(handle, "wb") as stream:
            stream.write(content)
            os.fchmod(handle, mode)
            stream.flush()
            os.fsync(handle)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
