# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Gives a host back: takes away what came with a role, as the record of the host says, and the record last.

Each step looks at what is there, so a removal that was killed is completed by the next one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from .._model.change import Change
from .._model.files import LOCK_SECONDS, describe_held_lock, locked
from . import engine_removal, installation
from .files import remove_path
from .host_record import RECORD, HostRecord, end_interrupted, find_roles, read_record, write_record
from .store import LockTimeoutError

UNKNOWN = (
    "packages, users, groups, kernel settings and masked units: there is no record of what was there before this host"
    " was provisioned"
)


SHARED = ("/usr/local/lib/backendai", "/var/lib/backendai", "/var/lib/backendai-manager")
"""What several roles have: the programs, the state of the firewall, the home of the account of managers."""


ENGINE_PROGRAMS = ("dockerd", "docker", "nvidia-ctk", "nvidia-container-runtime-hook")
"""The programs whose packages stay with an engine that others use."""

_ENGINE_UNIT = "docker.service"


@dataclasses.dataclass(frozen=True)
class EngineContents:
    """The ``folder`` with the data of a Docker engine, and its ``foreign`` containers and volumes."""

    folder: str
    foreign: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class RemovedRole:
    """What is removed with a ``role``.

    ``paths`` go with it, and ``shared_paths`` with the last role of the host; ``folders`` if they are empty then,
    and otherwise what is in them is named; ``shared_folders``, which others have files in, without a word.
    """

    role: str
    paths: Sequence[str] = ()
    shared_paths: Sequence[str] = SHARED
    folders: Sequence[str] = ()
    shared_folders: Sequence[str] = ()


class Removal:
    """The removal of a role: the ``changes``, and sentences about what was ``kept``; ``check_mode`` changes nothing.

    ``look`` returns what the Docker engine has, or ``None`` if an earlier removal has stopped it. It is called if the
    engine would go: with anything of others, it stays.
    """

    def __init__(self, removed: RemovedRole, look: Callable[[], EngineContents | None], *, check_mode: bool) -> None:
        self.changes: list[Change] = []
        self.kept: list[str] = []
        self._removed, self._look, self._check_mode = removed, look, check_mode

    def run(self, record_path: Path = RECORD) -> None:
        """Remove the role, one run at a time: that of a control node that was killed may still be at it.

        Raises :class:`LockTimeoutError`, :class:`DamagedRecordError`, :class:`subprocess.CalledProcessError`, and
        what ``look`` raises.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(FileNotFoundError):
                folder = record_path.parent
                if stack.enter_context(locked(folder, LOCK_SECONDS)) is None:
                    raise LockTimeoutError(describe_held_lock(folder, LOCK_SECONDS))
            self._remove(record_path)

    def _remove(self, record_path: Path) -> None:
        record = read_record(record_path)
        others = [role for role in find_roles() if role != self._removed.role]
        self._remove_paths(self._removed.paths, record_path)
        if not others:
            self._remove_paths(self._removed.shared_paths, record_path)
        self._remove_empty_folders()
        if others and self.changes:
            self.kept.append(f"packages and kernel settings: this host is {' and '.join(others)}, too")
        elif not others and (not record.complete if record else self.changes):
            self.kept.append(UNKNOWN)
        if others or record is None:
            return
        self._remove_installed(record, record_path)
        self._do(f"file {record_path}", "present", lambda: _remove_record(record_path))

    def _do(self, subject: str, before: str, action: Callable[[], None], after: str | None = None) -> None:
        """Note a change, and make it unless in check mode."""
        self.changes.append(Change(subject, before, after))
        if not self._check_mode:
            action()

    def _remove_paths(self, paths: Sequence[str], record_path: Path) -> None:
        for path in map(Path, paths):
            # The record goes last, and with it its folder. A mount point is emptied.
            stays = path.is_dir() and (path == record_path.parent or path.is_mount())
            for entry in sorted(path.iterdir()) if stays else [path]:
                of_file_system = entry.name == "lost+found" and path.is_mount()
                if entry != record_path and not of_file_system and (entry.is_symlink() or entry.exists()):
                    self._do(str(entry), "present", partial(remove_path, entry))

    def _remove_empty_folders(self) -> None:
        for folder in map(Path, (*self._removed.folders, *self._removed.shared_folders)):
            if not folder.is_dir():
                continue
            gone = {change.subject for change in self.changes}
            names = sorted(entry.name for entry in folder.iterdir() if str(entry) not in gone)
            if not names:
                self._do(str(folder), "present", folder.rmdir)
            elif str(folder) in self._removed.folders:
                self.kept.append(f"{folder}: {', '.join(names)} did not come with this collection")

    def _remove_installed(self, record: HostRecord, record_path: Path) -> None:
        """Remove packages, users and groups that were added, and restore units and kernel settings."""
        host = installation.read_installed()
        if record.before is not None:
            record = end_interrupted(record, host, installation.read_automatic())
        for package in sorted(record.lost - host.packages):
            self.kept.append(f"package {package}: others replaced it when they came; install it again if you need it")
        added, packages = record.added, record.added.packages & host.packages
        if "sudo" in packages and installation.root_is_locked():
            # Its package refuses to go.
            packages -= {"sudo"}
            self.kept.append("package sudo: root has no password, so without it nobody could become root")
        engine = installation.owner_of("dockerd")
        contents = EngineContents(record.engine_folder)
        if engine in packages:
            contents = self._look() or contents
        needed = self._keep_needed(packages, contents.foreign)
        gone = packages - needed
        if engine in gone:
            self._remove_engine(dataclasses.replace(record, engine_folder=contents.folder), record_path)
        if gone:
            self._do("packages", ", ".join(sorted(gone)), lambda: installation.purge(gone))
        # An earlier removal may have been killed after it.
        left = gone | {name for name in added.packages - host.packages if shutil.which(name) is None}
        for package, paths in installation.LEFT_BY_PACKAGES.items():
            if package in left:
                self._remove_paths(paths, RECORD)
        self._restore_units(record)
        if needed:
            self.kept.append("kernel settings, users and groups: the packages that stay may need them")
            return
        self._remove_accounts(added.users, added.groups)
        self._restore_sysctls(record)

    def _keep_needed(self, packages: frozenset[str], foreign: Sequence[str]) -> set[str]:
        """Return the packages that stay, because others, or an engine with ``foreign`` contents, need them."""
        if packages and installation.uses_rpm():
            self.kept.append(f"packages: remove those that you do not need: dnf remove {' '.join(sorted(packages))}")
            return {*packages}
        protected = packages & {installation.owner_of(name) for name in ENGINE_PROGRAMS} if foreign else set()
        needed = installation.keep_needed(packages, protected)
        for package, by in needed.items():
            of_engine = protected & {*by}
            why = f"the engine has {', '.join(foreign)}" if of_engine else f"{', '.join(by)} needs it"
            self.kept.append(f"package {package}: {why}")
        return {*needed}

    def _remove_engine(self, record: HostRecord, record_path: Path) -> None:
        def clear() -> None:
            # If this is interrupted, the next removal cannot ask the engine any more.
            write_record(record, record_path)
            engine_removal.clear_engine(record.tables, record.engine_folder)

        others = engine_removal.find_others(record.engine_folder)
        self._do("Docker engine", "rules, bridge and data", clear)
        if others:
            self.kept.append(
                f"folder {record.engine_folder}: the engine was set to keep its data there, beside {', '.join(others)}:"
                " remove what it has left"
            )

    def _remove_accounts(self, users: frozenset[str], groups: frozenset[str]) -> None:
        """Remove users and groups that packages have created and left."""
        host = installation.read_installed()
        users, groups = users & host.users, groups & host.groups
        if users | groups:
            names = ", ".join(sorted(users | groups))
            self._do("users and groups", names, lambda: installation.remove_accounts(users, groups))

    def _restore_units(self, record: HostRecord) -> None:
        present = installation.read_units(record.units)
        for unit, before in sorted(record.units.items()):
            if present[unit] == "masked" and before != "masked":
                self._do(f"unit {unit}", "masked", partial(_systemctl, "unmask", unit), before)
            elif present[unit] == "enabled" and before == "disabled":
                # An engine that was there before may run containers of others.
                stop = [] if unit == _ENGINE_UNIT else ["--now"]
                self._do(f"unit {unit}", "enabled", partial(_systemctl, "disable", *stop, unit), before)
                if not stop:
                    self.kept.append(f"unit {unit}: disabled as before, but not stopped: others may have containers")

    def _restore_sysctls(self, record: HostRecord) -> None:
        present = installation.read_sysctls(record.sysctls)
        for name, value in sorted(record.sysctls.items()):
            if name in present and present[name] != value:
                write = ["sysctl", "--quiet", "--write", f"{name}={value}"]
                self._do(f"kernel setting {name}", present[name], partial(_run, write), value)


def _systemctl(*words: str) -> None:
    _run(["systemctl", "--quiet", *words])


def _run(command: Sequence[str]) -> None:
    installation.run_checked(command)


def _remove_record(path: Path) -> None:
    path.unlink()
    if not any(path.parent.iterdir()) and not path.parent.is_mount():
        path.parent.rmdir()
