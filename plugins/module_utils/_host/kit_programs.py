# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finds the programs that a kit is made of, with their loaders and libraries: on a host, or in unpacked packages."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .kit import BUSYBOX, PROGRAMS, SSHD_PROGRAMS, KitBuildError, KitFile

HOST = (Path("/"),)
OLDEST_LIBC = "2.34"
REMEDY = "set agent_kit to a file that backendai.cluster.build_kit has made of Debian 12, Ubuntu 22.04 or later"
# Where distributions have them; the last ones are of what sshd starts, and of SUSE.
_FOLDERS = ("usr/sbin", "usr/bin", "sbin", "bin", "usr/lib/openssh", "usr/libexec/openssh", "usr/lib/ssh")
_LIBRARIES = ("lib/*-linux-gnu*", "usr/lib/*-linux-gnu*")
# The loader, which is named at the beginning of a program, but not in a static one.
_LOADER = re.compile(rb"(/lib[^\0]*/ld[^\0/]*)\0")
_LIBRARY = re.compile(r"^\s*(?P<name>[^\s/]+) => (?P<path>/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)
_MISSING = re.compile(r"^\s*(?P<name>\S+) => not found$", re.MULTILINE)


def find_missing(roots: Sequence[Path] = HOST) -> list[str]:
    """Return the names of programs that a kit needs, and that are not there."""
    return [name for name in ("busybox", *PROGRAMS) if _find(name, roots) is None]


def find_files(roots: Sequence[Path] = HOST) -> dict[str, Path]:
    """Return the programs, loaders and libraries of a kit: path in the kit → file.

    ``roots`` are the root of this host, or those of its unpacked packages. Raises :class:`KitBuildError`.
    """
    missing = find_missing(roots)
    if missing:
        raise KitBuildError(
            f"This host has no {', '.join(missing)} for the runtime kit: install what has them, or {REMEDY}."
        )
    found = {name: path for name in ("busybox", *PROGRAMS, *SSHD_PROGRAMS) for path in [_find(name, roots)] if path}
    busybox = found.pop("busybox")
    if _loader_of(busybox):
        raise KitBuildError(
            f"{busybox} is not static, and must run in any image: install busybox-static instead of it."
        )
    folders = [] if roots == HOST else [folder for root in roots for each in _LIBRARIES for folder in root.glob(each)]
    files = {BUSYBOX: busybox}
    for name, program in found.items():
        loader = _find_loader(program, folders)
        search = ["--library-path", ":".join(map(str, folders))] if folders else []
        files.update({f"libexec/{name}": program, f"loader/{name}": loader})
        files.update(_list_libraries(program, [str(loader), "--argv0", name, *search, "--list", str(program)]))
    return files


def read_files(files: Mapping[str, Path]) -> dict[str, KitFile]:
    """Return the contents of what was found; libraries are not executable."""
    return {
        path: KitFile(file.read_bytes(), 0o644 if path.startswith("lib/") else 0o755) for path, file in files.items()
    }


def parse_libraries(program: Path, output: str) -> dict[str, Path]:
    """Return the libraries that a loader lists for a program, by their path in the kit. Raises KitBuildError."""
    if match := _MISSING.search(output):
        raise KitBuildError(f"{program} needs {match['name']}, which is not installed: reinstall its package.")
    return {f"lib/{match['name']}": Path(match["path"]) for match in _LIBRARY.finditer(output)}


def _list_libraries(program: Path, command: Sequence[str]) -> dict[str, Path]:
    # An own LD_LIBRARY_PATH of root is no part of the distribution.
    environment = {**{name: value for name, value in os.environ.items() if not name.startswith("LD_")}, "LC_ALL": "C"}
    listed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if "--argv0" in listed.stderr:
        raise KitBuildError(f"{program} is of a C library before glibc {OLDEST_LIBC}: {REMEDY}.")
    return parse_libraries(program, listed.stdout)


def _find(name: str, roots: Iterable[Path]) -> Path | None:
    return next((path for root in roots for each in _FOLDERS for path in [root / each / name] if path.is_file()), None)


def _loader_of(program: Path) -> str:
    with program.open("rb") as file:
        match = _LOADER.search(file.read(4096))
    return match[1].decode() if match else ""


def _find_loader(program: Path, folders: Sequence[Path]) -> Path:
    """Return the loader of a program; of unpacked packages theirs, which is beside the C library."""
    name = _loader_of(program)
    places = [folder / os.path.basename(name) for folder in folders] if folders else [Path(name)]
    loader = next((place for place in places if place.is_file()), None)
    if not name or loader is None:
        raise KitBuildError(f"{program} has no dynamic loader: the kit requires the distribution's build.")
    return loader
