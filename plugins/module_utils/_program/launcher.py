# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the collection's program on a host, and put it there first where it is missing or damaged.

The program is one archive of sources, known by the SHA-256 digest of its bytes. On a host it has a folder of its own,
``<home>/<digest>-<interpreter tag>``, because compiled code does not outlive an upgrade of Python: ``source.pyz`` is
the archive as it came, ``program.pyz`` the same compiled, behind a line with its own digest, checked at each use.
``<home>/current`` names the release that systemd's units run, and only ever moves to a newer one.

This text is all that a task gives to a host's Python, and the ``__main__.py`` of the archive that units run, so it
imports nothing of ours. Units pass arguments, which are the program's; tasks pass none, and send the rest behind this
text.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
import time
import zipfile
from typing import Any

MARK = "backendai-reply "  # before the reply: logins print things, too
OLDEST_PYTHON = (3, 9)
SOURCE, PROGRAM, RELEASE, CURRENT = "source.pyz", "program.pyz", "release", "current"
MAIN = "ansible_collections.backendai.cluster.plugins.module_utils._program.main"
UNUSED_SECONDS = 30 * 86400  # no control node can know which programs the others still use
LEFTOVER_SECONDS = 3600


def main() -> None:
    """Serve a task, or run as a unit of systemd."""
    if len(sys.argv) > 1:
        raise SystemExit(imported(program_for_unit(os.path.realpath(sys.argv[0]))).command(sys.argv[1:]))
    reply = serve()
    sys.stdout.write(f"\n{MARK}{json.dumps(reply)}\n")
    sys.stdout.flush()
    # A thread that hangs must not keep the connection.
    os._exit(0)


def serve() -> dict[str, Any]:
    """Return the reply to a task: that of the program, ``missing`` where that has to come first, or ``failed`` and why.

    On standard input come a line of JSON, the archive where it was missing, and the request. The line has ``digest``
    and ``release`` of the program, its ``home``, the ``size`` of the archive in bytes, whether to ``provision`` (units
    shall run this program), and whether to ``check`` (nothing may change on the host). Replies say whether anything
    was ``installed``, or would be.
    """
    stream = sys.stdin.buffer
    header = json.loads(stream.readline())
    archive, request = stream.read(header["size"]), stream.read()
    folder = folder_of(header["home"], header["digest"])
    try:
        refuse_python()
        if archive and hashlib.sha256(archive).hexdigest() != header["digest"]:
            raise OSError("it was damaged on its way")
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
        return {"failed": f"the program of this collection cannot be put into {header['home']}: {error}."}
    return {"installed": due, **run(folder, request)}


def refuse_python() -> None:
    """Raise :class:`OSError` where the interpreter is too old."""
    if sys.version_info[:2] < OLDEST_PYTHON:
        current, required = (".".join(map(str, version)) for version in (sys.version_info[:2], OLDEST_PYTHON))
        raise OSError(f"{sys.executable} is Python {current}, and {required} or later is needed")


def run_from_elsewhere(archive: bytes, request: bytes) -> dict[str, Any]:
    """Return the reply of a program that leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="backendai-") as place:
        write(os.path.join(place, PROGRAM), compile_archive(archive, place))
        return run(place, request)


def run(folder: str, request: bytes) -> dict[str, Any]:
    """Return what the program in a folder replies to a request; nothing to an empty one."""
    reply: dict[str, Any] = imported(os.path.join(folder, PROGRAM)).reply_to(json.loads(request)) if request else {}
    return reply


def imported(program: str) -> Any:
    """Return the program's own main module."""
    sys.path.insert(0, program)
    __import__(MAIN)
    return sys.modules[MAIN]


def program_for_unit(source: str) -> str:
    """Return the compiled program for the sources that a unit runs, made where this interpreter has none yet."""
    source_folder = os.path.dirname(source)
    folder = folder_of(os.path.dirname(source_folder), os.path.basename(source_folder).partition("-")[0])
    try:
        if not is_intact(folder):
            with open(source, "rb") as archive, open(os.path.join(source_folder, RELEASE)) as release:
                put(folder, archive.read(), release.read(), provision=True)
    except OSError:
        # The disk is full, or read-only: slower, and as good.
        return source
    mark_used(folder)
    return os.path.join(folder, PROGRAM)


def folder_of(home: str, digest: str) -> str:
    """Return the folder of a program for this interpreter."""
    return os.path.join(home, f"{digest}-{sys.implementation.cache_tag}")


def is_intact(folder: str) -> bool:
    """Return whether the compiled program is there, whole and as it was made."""
    try:
        with open(os.path.join(folder, PROGRAM), "rb") as stream:
            seal, content = stream.readline(), stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return seal == seal_of(content)


def put(folder: str, archive: bytes, release: str, *, provision: bool) -> None:
    """Install a program that is missing, remove those that nobody uses any more, and let units run it if they shall.

    Tasks that come at once wait for the first one, whose program is as good as theirs.
    """
    home = os.path.dirname(folder)
    os.makedirs(home, 0o755, exist_ok=True)
    lock = os.open(home, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
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


def install_program(folder: str, archive: bytes, release: str) -> None:
    """Put a program into its folder, which appears as a whole."""
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
    """Return an archive of the same modules, compiled, behind its seal; ``place`` is a folder for the sources."""
    sources = os.path.join(place, "sources")
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        packed.extractall(sources)
    compiled = io.BytesIO()
    with zipfile.PyZipFile(compiled, "w") as packed:
        packed.writepy(os.path.join(sources, MAIN.partition(".")[0]))
    return seal_of(compiled.getvalue()) + compiled.getvalue()


def seal_of(content: bytes) -> bytes:
    """Return the line with the digest of what follows: something may stand before an archive."""
    return f"{hashlib.sha256(content).hexdigest()}\n".encode()


def write(path: str, content: bytes) -> None:
    """Write a file, and have it on the disk before its folder gets its name."""
    with open(path, "wb") as stream:
        os.fchmod(stream.fileno(), 0o644)
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def becomes_current(folder: str, release: str, *, provision: bool) -> bool:
    """Return whether units are to run the program of a folder, and run another one so far.

    An older release never takes over, and one of the same release only where that is provisioned. Where nothing was
    provisioned, there is no unit that could run anything.
    """
    link = os.path.join(os.path.dirname(folder), CURRENT)
    before = os.path.realpath(link) if os.path.islink(link) else ""
    if before == os.path.realpath(folder) or not (before or provision):
        return False
    ours, theirs = numbers_of(release), numbers_of(release_in(before))
    return ours > theirs or (ours == theirs and provision)


def release_in(folder: str) -> str:
    """Return the release of a program; empty where it cannot be read."""
    try:
        with open(os.path.join(folder, RELEASE)) as stream:
            return stream.read()
    except OSError:
        return ""


def numbers_of(release: str) -> tuple[int, ...]:
    """Return a release as numbers, such as (0, 1, 0); what follows them, as in ``0.1.0-beta.2``, does not count."""
    return tuple(int(part) for part in release.replace("+", "-").partition("-")[0].split(".") if part.strip().isdigit())


def mark_used(folder: str) -> None:
    """Note that a program is in use. Where that cannot be written, nothing can be removed either."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def remove_unused(home: str) -> None:
    """Remove the programs that nobody has used for long, and what tasks left that were killed."""
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
