# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the collection's program on a host, and installs it first if it is missing or damaged.

The program is one archive of sources, identified by its SHA-256 digest. On a host it has its own folder,
``<home>/<digest>-<interpreter tag>``, because compiled code does not survive an upgrade of Python: ``source.pyz`` is
the archive as received, ``program.pyz`` the same compiled, after a line with its digest, which is checked at each use.
``<home>/current`` links to the release that the systemd units run, and is only ever changed to a newer one.

This file is all that a task passes to a host's Python, and the ``__main__.py`` of the archive that units run, so it
imports nothing of the collection. Units pass the program's arguments; tasks pass none, and send the request on
standard input, after this file.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import hashlib
import io
import json
import os
import shutil
import sys
import time
from typing import Any

MARK = "backendai-reply "  # separates the reply from other output of the login
OLDEST_PYTHON = (3, 9)
SOURCE, PROGRAM, RELEASE, CURRENT = "source.pyz", "program.pyz", "release", "current"
MAIN = "ansible_collections.backendai.cluster.plugins.module_utils._program.main"
UNUSED_SECONDS = 30 * 86400  # no control node can know which programs the others still use
LEFTOVER_SECONDS = 3600
LOCK_SECONDS = 60
# Where distributions have programs of root, in the order of systemd. The login may have come without: su keeps the PATH
# of the user, and /etc/environment or a file of the shell may set one.
FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def main() -> None:
    """Serve a task, or run as a systemd unit."""
    set_path()
    if len(sys.argv) > 1:
        raise SystemExit(imported(program_for_unit(os.path.realpath(sys.argv[0]))).command(sys.argv[1:]))
    reply = serve()
    sys.stdout.write(f"\n{MARK}{json.dumps(reply)}\n")
    sys.stdout.flush()
    # A thread that hangs must not keep the connection.
    os._exit(0)


def set_path() -> None:
    """Let programs of root be found by name, after those that the login finds."""
    given = [folder for folder in os.environ.get("PATH", "").split(":") if folder]
    os.environ["PATH"] = ":".join([*given, *(folder for folder in FOLDERS if folder not in given)])


def serve() -> dict[str, Any]:
    """Return the reply to a task: that of the program, ``missing`` if the archive is needed, or ``failed`` and why.

    Standard input has a line of JSON, the archive if it was missing, and the request. The line has ``digest`` and
    ``release`` of the program, its ``home``, the ``size`` of the archive in bytes, whether to ``provision`` (units
    shall run this program), and whether to ``check`` (nothing may change on the host). Replies contain whether the
    program was, or would be, ``installed``.
    """
    stream = sys.stdin.buffer
    header = json.loads(stream.readline())
    archive, request = stream.read(header["size"]), stream.read()
    folder = folder_of(header["home"], header["digest"])
    try:
        refuse_python()
        if archive and hashlib.sha256(archive).hexdigest() != header["digest"]:
            raise OSError("it was corrupted in transfer")
        intact = is_intact(folder)
        if not intact and not archive:
            return {"missing": True}
        due = not intact or becomes_current(folder, header["release"], provision=header["provision"])
        if header["check"]:
            return {"installed": due, **(run(folder, request) if intact else run_from_elsewhere(archive, request))}
        if due:
            put(folder, archive, header["release"], provision=header["provision"])
        mark_used(folder)
    except OSError as error:
        return {"failed": f"the program of this collection cannot be installed in {header['home']}: {error}."}
    return {"installed": due, **run(folder, request)}


def refuse_python() -> None:
    """Raise :class:`OSError` if the interpreter is too old."""
    if sys.version_info[:2] < OLDEST_PYTHON:
        current, required = (".".join(map(str, version)) for version in (sys.version_info[:2], OLDEST_PYTHON))
        raise OSError(f"{sys.executable} is Python {current}, and {required} or later is needed")


def run_from_elsewhere(archive: bytes, request: bytes) -> dict[str, Any]:
    """Return the reply of the program, run from a temporary folder."""
    # Imported only where something is installed: it takes a tenth of the time of a usual request.
    import tempfile

    with tempfile.TemporaryDirectory(prefix="backendai-") as place:
        write(os.path.join(place, PROGRAM), compile_archive(archive, place))
        return run(place, request)


def run(folder: str, request: bytes) -> dict[str, Any]:
    """Return the reply of the program in a folder to a request; empty for an empty request."""
    reply: dict[str, Any] = imported(os.path.join(folder, PROGRAM)).reply_to(json.loads(request)) if request else {}
    return reply


def imported(program: str) -> Any:
    """Import and return the program's main module."""
    # What is imported stays, and looking for garbage in it takes a tenth of the time: the program enables this again.
    gc.disable()
    sys.path.insert(0, program)
    __import__(MAIN)
    return sys.modules[MAIN]


def program_for_unit(source: str) -> str:
    """Return the compiled program for the sources that a unit runs; compile it if this interpreter has none yet."""
    source_folder = os.path.dirname(source)
    folder = folder_of(os.path.dirname(source_folder), os.path.basename(source_folder).partition("-")[0])
    try:
        if not is_intact(folder):
            with open(source, "rb") as archive, open(os.path.join(source_folder, RELEASE)) as release:
                put(folder, archive.read(), release.read(), provision=True)
    except OSError:
        # The disk is full, or read-only: the sources run too, only slower.
        return source
    mark_used(folder)
    return os.path.join(folder, PROGRAM)


def folder_of(home: str, digest: str) -> str:
    """Return the folder of a program for this interpreter."""
    return os.path.join(home, f"{digest}-{sys.implementation.cache_tag}")


def is_intact(folder: str) -> bool:
    """Return whether the compiled program exists and matches its digest."""
    try:
        with open(os.path.join(folder, PROGRAM), "rb") as stream:
            seal, content = stream.readline(), stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return seal == seal_of(content)


def put(folder: str, archive: bytes, release: str, *, provision: bool) -> None:
    """Install a program if missing, remove unused ones, and make it the current one of units if it is newer.

    Concurrent tasks wait for the first one, and use the program that it installed.
    """
    home = os.path.dirname(folder)
    os.makedirs(home, 0o755, exist_ok=True)
    lock = os.open(home, os.O_RDONLY)
    try:
        acquire(lock, home)
        if not is_intact(folder):
            install_program(folder, archive, release)
            remove_unused(home)
        if becomes_current(folder, release, provision=provision):
            staged = os.path.join(home, f"{CURRENT}.new")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(staged)
            os.symlink(os.path.basename(folder), staged)
            os.replace(staged, os.path.join(home, CURRENT))
    finally:
        os.close(lock)


def acquire(lock: int, home: str) -> None:
    """Lock an open folder. Raises :class:`OSError` if another task holds the lock for too long."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise OSError(f"another process has held the lock of {home} for {LOCK_SECONDS} seconds") from None
        time.sleep(0.01)


def install_program(folder: str, archive: bytes, release: str) -> None:
    """Install a program into its folder atomically."""
    import tempfile

    place = tempfile.mkdtemp(prefix=".new-", dir=os.path.dirname(folder))
    new = os.path.join(place, "new")
    try:
        os.mkdir(new)
        os.chmod(new, 0o755)
        write(os.path.join(new, SOURCE), archive)
        write(os.path.join(new, PROGRAM), compile_archive(archive, place))
        write(os.path.join(new, RELEASE), release.encode())
        if os.path.lexists(folder):
            os.rename(folder, os.path.join(place, "damaged"))
        os.rename(new, folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def compile_archive(archive: bytes, place: str) -> bytes:
    """Return an archive of the compiled modules, after its digest line; ``place`` is a folder for the sources."""
    import zipfile

    sources = os.path.join(place, "sources")
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        packed.extractall(sources)
    compiled = io.BytesIO()
    with zipfile.PyZipFile(compiled, "w") as packed:
        packed.writepy(os.path.join(sources, MAIN.partition(".")[0]))
    return seal_of(compiled.getvalue()) + compiled.getvalue()


def seal_of(content: bytes) -> bytes:
    """Return the line with the digest of the content; the zip format allows data before an archive."""
    return f"{hashlib.sha256(content).hexdigest()}\n".encode()


def write(path: str, content: bytes) -> None:
    """Write a file and sync it to disk, before its folder is renamed."""
    with open(path, "wb") as stream:
        os.fchmod(stream.fileno(), 0o644)
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def becomes_current(folder: str, release: str, *, provision: bool) -> bool:
    """Return whether units must be switched to the program of a folder.

    An older release never replaces the current one, and another program of the same release only when provisioning.
    Before the first provisioning there are no units.
    """
    link = os.path.join(os.path.dirname(folder), CURRENT)
    before = os.path.realpath(link) if os.path.islink(link) else ""
    if before == os.path.realpath(folder) or not (before or provision):
        return False
    ours, theirs = numbers_of(release), numbers_of(release_in(before))
    return ours > theirs or (ours == theirs and provision)


def release_in(folder: str) -> str:
    """Return the release of a program; empty if it cannot be read."""
    try:
        with open(os.path.join(folder, RELEASE)) as stream:
            return stream.read()
    except OSError:
        return ""


def numbers_of(release: str) -> tuple[int, ...]:
    """Return a release as numbers, such as (0, 1, 0); a suffix, as in ``0.1.0-beta.2``, is ignored."""
    return tuple(int(part) for part in release.replace("+", "-").partition("-")[0].split(".") if part.strip().isdigit())


def mark_used(folder: str) -> None:
    """Update the time of a program's last use. If that fails, the disk is read-only, and nothing is removed either."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def remove_unused(home: str) -> None:
    """Remove programs that were not used for a long time, and leftovers of killed tasks."""
    now, current = time.time(), os.path.realpath(os.path.join(home, CURRENT))
    for name in os.listdir(home):
        path = os.path.join(home, name)
        max_age = LEFTOVER_SECONDS if name.startswith(".new-") else UNUSED_SECONDS
        if not os.path.isdir(path) or os.path.islink(path) or os.path.realpath(path) == current:
            continue
        if now - os.stat(path).st_mtime > max_age:
            shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
