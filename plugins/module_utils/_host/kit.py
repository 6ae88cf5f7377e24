# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The runtime kit: sshd, ssh, a shell and a web terminal of some distribution that run in any image, on any host.

A kit is a folder ``<root>/<version>`` with ``bin``, ``etc``, ``lib``, ``libexec``, ``loader`` and ``shell``, mounted at
``/opt/backendai`` in every container. Its programs do not use the image's C library: they are started by the kit's
loader with the kit's libraries. Nor do they obey files of the image. The version is a digest of all files, so a folder
never changes under a running container; the link ``<root>/current`` points to the newest version.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .._model.change import Change
from .._model.files import write_atomically
from .store import NotProvisionedError

MOUNT_POINT = "/opt/backendai"
CURRENT = "current"
BUSYBOX = "bin/busybox"
PROGRAMS = ("sshd", "ssh", "scp", "sftp", "ssh-keygen", "shellinaboxd")

# Programs that sshd starts, with the options that name them: from OpenSSH 9.8 and 10.0 on.
SSHD_PROGRAMS = {
    "sshd-session": ("PerSourcePenalties no", f"SshdSessionPath {MOUNT_POINT}/bin/sshd-session"),
    "sshd-auth": (f"SshdAuthPath {MOUNT_POINT}/bin/sshd-auth",),
}
# sshd runs as the user whom it lets in, and so cannot let in another one. Frameworks log in many times at once, some
# over one connection. How many logins may be unfinished depends on the container's memory: see _model/sshd.py.
# internal-sftp requires no program in the image.
SSHD_CONFIG = """\
HostKey /run/backendai/ssh/ssh_host_ed25519_key
PidFile none
LogLevel FATAL
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
LoginGraceTime 60
MaxSessions 1000
MaxAuthTries 20
PrintLastLog no
Subsystem sftp internal-sftp
"""

SHEBANG = f"#!{MOUNT_POINT}/bin/busybox sh\n"

# sshd starts itself again by its name, which must be a path, hence --argv0. A process has the name of the file that is
# executed: the loader's. LD_LIBRARY_PATH is overridden by --library-path. The image's configuration of OpenSSL may name
# modules for another version.
WRAPPER = """\
unset LD_PRELOAD LD_AUDIT LD_DEBUG LD_DEBUG_OUTPUT LD_PROFILE LD_PROFILE_OUTPUT LD_TRACE_LOADED_OBJECTS
unset GCONV_PATH GLIBC_TUNABLES
export OPENSSL_CONF=/dev/null
exec {kit}/loader/{name} --inhibit-cache --library-path {kit}/lib --argv0 {kit}/bin/{name} {kit}/libexec/{name} "$@"
"""

# Read by login shells of images, whose own files in /etc/profile.d they read, too.
PROFILE = "[ ! -r /var/lib/backendai/environment ] || . /var/lib/backendai/environment\n"

#: What is bound over files of an image, by its path in the kit: rules for TCP wrappers would concern logins.
BOUND_FILES = {
    "etc/empty": ("/etc/hosts.allow", "/etc/hosts.deny"),
    "etc/profile.sh": ("/etc/profile.d/backendai.sh",),
}

#: Files of an image that programs of the kit would obey, and as long a path to read instead, which is never there but
#: for the second: libraries that the loader loads into every program, how users are looked up, what busybox may run,
#: and that nobody may log in.
REPLACED_PATHS = {
    b"/etc/ld.so.preload": b"/opt/backendai/non",
    b"/etc/nsswitch.conf": b"/opt/backendai/nss",
    b"/etc/busybox.conf": b"/opt/backendai/no",
    b"/etc/nologin": b"/proc/0/none",
}
NSS = b"passwd: files\ngroup: files\nhosts: files dns\n"

_VERSION = re.compile(r"[0-9a-f]{12}")


class KitBuildError(NotProvisionedError):
    """The programs of a kit are incomplete, or cannot be used; the message is one sentence for the operator."""


@dataclass(frozen=True)
class KitFile:
    """The content of one file and its permission bits."""

    content: bytes
    mode: int

    @cached_property
    def digest(self) -> str:
        """Return the digest of content and mode, in twelve hexadecimal digits."""
        return hashlib.sha256(b"%o\0%s" % (self.mode, self.content)).hexdigest()[:12]


@dataclass(frozen=True)
class Kit:
    """All files of one kit, by their path below its folder."""

    files: Mapping[str, KitFile]

    @cached_property
    def version(self) -> str:
        """Return the digest of every path, mode and content, in twelve hexadecimal digits."""
        listing = "".join(f"{path} {self.files[path].digest}\n" for path in sorted(self.files))
        return hashlib.sha256(listing.encode()).hexdigest()[:12]


def script(text: str) -> KitFile:
    """Return a shell script with its shebang line replaced by that of the kit's shell."""
    return KitFile((SHEBANG + re.sub(r"\A#!.*\n", "", text)).encode(), 0o755)


def sshd_config(programs: Iterable[str]) -> str:
    """Return the configuration of an sshd that starts these of ``SSHD_PROGRAMS``."""
    return SSHD_CONFIG + "".join(f"{option}\n" for program in programs for option in SSHD_PROGRAMS[program])


def build_kit(scripts: Mapping[str, str], programs: Mapping[str, KitFile]) -> Kit:
    """Build the kit of ``scripts`` (path → text) and ``programs``, which are those of a host or an archive."""
    files = {path: script(text) for path, text in scripts.items()}
    files.update({path: _obeying_no_image(program) for path, program in programs.items()})
    files["bin/sh"] = files[BUSYBOX]
    names = [path.partition("/")[2] for path in programs if path.startswith("libexec/")]
    files["etc/sshd_config"] = KitFile(sshd_config(name for name in SSHD_PROGRAMS if name in names).encode(), 0o644)
    files["etc/empty"] = KitFile(b"", 0o644)
    files["etc/profile.sh"] = KitFile(PROFILE.encode(), 0o644)
    files["nss"] = KitFile(NSS, 0o644)
    files.update({f"bin/{name}": script(WRAPPER.format(kit=MOUNT_POINT, name=name)) for name in names})
    return Kit(files)


def host_command(folder: str, name: str) -> tuple[str, ...]:
    """Return the command that runs a program of the kit in a folder on the host itself, which may have none."""
    return (f"{folder}/loader/{name}", "--inhibit-cache", "--library-path", f"{folder}/lib", f"{folder}/libexec/{name}")


def current_version(root: str) -> str | None:
    """Return the version that new containers mount, or None if no kit is installed."""
    try:
        return os.readlink(os.path.join(root, CURRENT))
    except FileNotFoundError:
        return None


def kit_changes(kit: Kit, root: str) -> list[Change]:
    """Return the differences between ``kit`` and the kit installed below ``root``, file by file."""
    changes: list[Change] = []
    for path in sorted(kit.files):
        subject = os.path.join(kit.version, path)
        installed, desired = _digest(os.path.join(root, subject)), kit.files[path].digest
        if installed != desired:
            changes.append(Change(subject, installed, desired))
    current = current_version(root)
    if current != kit.version:
        changes.append(Change(CURRENT, current, kit.version))
    return changes


def unused_versions(kit: Kit, root: str, mounted: Collection[str]) -> list[str]:
    """Return the versions below ``root`` that no container mounts and that can be removed once ``kit`` is current.

    The version that it replaces is never among them: a session that is being created may have selected it
    already, while its containers do not exist yet.
    """
    current = current_version(root)
    if current in (None, kit.version):
        return []
    versions = [name for name in os.listdir(root) if _VERSION.fullmatch(name) and name not in (current, kit.version)]
    return sorted(version for version in versions if os.path.join(root, version) not in mounted)


def install_kit(kit: Kit, root: str, changes: Iterable[Change]) -> None:
    """Apply ``changes``: a new version is installed atomically, a damaged one is repaired file by file."""
    os.umask(0o022)  # folders must be readable by every user of every container
    folder = os.path.join(root, kit.version)
    paths = [os.path.relpath(change.subject, kit.version) for change in changes if change.subject != CURRENT]
    if os.path.isdir(folder):
        _write_files(kit, paths, folder)
    else:
        unfinished = os.path.join(root, f".{kit.version}")
        shutil.rmtree(unfinished, ignore_errors=True)
        _write_files(kit, paths, unfinished)
        os.rename(unfinished, folder)
    link = os.path.join(root, f".{CURRENT}")
    if os.path.lexists(link):
        os.unlink(link)
    os.symlink(kit.version, link)
    os.replace(link, os.path.join(root, CURRENT))


def remove_kit(root: str, versions: Iterable[str]) -> None:
    """Remove ``versions`` from below ``root``."""
    for version in versions:
        shutil.rmtree(os.path.join(root, version))


def _write_files(kit: Kit, paths: Iterable[str], folder: str) -> None:
    for path in paths:
        target = Path(folder, path)
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_atomically(target, kit.files[path].content, kit.files[path].mode, durable=False)


def _digest(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return KitFile(file.read(), os.fstat(file.fileno()).st_mode & 0o7777).digest
    except FileNotFoundError:
        return None


def _obeying_no_image(program: KitFile) -> KitFile:
    content = program.content
    for replaced, instead in REPLACED_PATHS.items():
        content = content.replace(replaced + b"\0", instead + b"\0")
    return KitFile(content, program.mode)
