# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A file with the programs of a runtime kit, for agents of one architecture whose own packages do not matter.

It is a compressed tar archive: the programs with their loaders and libraries, ``licences`` with the texts of their
packages, and ``kit.json``, which lists the architecture, the packages and a digest of the programs.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import platform
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from .._model.errors import as_phrase
from .installation import run_checked
from .kit import BUSYBOX, PROGRAMS, Kit, KitBuildError, KitFile
from .kit_programs import find_files, read_files

PACKAGES = ("busybox-static", "openssh-client", "openssh-server", "shellinabox")
FORMAT = 1
HOST_KIT = "host"
"""Stands for no archive: the programs of the host itself."""

_LISTING = "kit.json"
_NEEDED = {BUSYBOX, *(f"{folder}/{name}" for folder in ("libexec", "loader") for name in PROGRAMS)}
_PATH = re.compile(r"(?:bin|lib|libexec|loader)/\w[\w.+-]*")
_LICENCE = re.compile(r"(?<=^License: )\S.*?(?= *$)|(?<=/common-licenses/)[\w.+-]*\w", re.MULTILINE)
_COMMON = Path("/usr/share/common-licenses")
_AGAIN = "copy it again, or make it with backendai.cluster.build_kit of this release"


class Part(NamedTuple):
    """A package of which a kit has files; ``licences`` are those that its text names, or the path of the text."""

    name: str
    version: str
    licences: list[str]


def build_archive(folder: Path) -> tuple[bytes, list[Part]]:
    """Return an archive of packages of this host's distribution, and its parts; ``folder`` is an empty one for them.

    Nothing is installed. Raises :class:`KitBuildError` or :class:`subprocess.CalledProcessError`.
    """
    roots = _unpack(folder)
    files = find_files(roots)
    used = sorted(root for root in roots if any(root in file.parents for file in files.values()))
    texts = {file.parent.name: file.read_text(errors="replace") for file in folder.glob("*/usr/share/doc/*/copyright")}
    parts, licences = [], {}
    for root in used:
        name, version, _architecture = map(unquote, root.name.split("_"))
        document = root / "usr/share/doc" / name
        # A package may refer to another one of the same source.
        text = texts.get(os.path.basename(os.readlink(document)) if document.is_symlink() else name, "")
        found = {*_LICENCE.findall(text)}
        parts.append(Part(name, version, sorted(found) or [f"licences/{name}"]))
        common = {each: (_COMMON / each).read_text() for each in found if (_COMMON / each).is_file()}
        for licence, content in {name: text, **common}.items():
            licences[f"licences/{licence}"] = KitFile(content.encode(), 0o644)
    return pack(read_files(files), parts, dict(sorted(licences.items()))), parts


def _unpack(folder: Path) -> list[Path]:
    """Download the packages with all that they need, whatever is installed here; unpack each to a folder of its own."""
    if shutil.which("apt-get") is None:
        raise KitBuildError("This host has no apt-get: name one of Debian's family in agent_kit_host.")
    state = folder / ".apt"
    for name in ("archives/partial", "lists/partial"):
        (state / name).mkdir(parents=True)
    (state / "status").touch()
    own = [f"--option=Dir::{kind}={state}" for kind in ("State", "Cache")]
    options = [*own, f"--option=Dir::State::status={state}/status", "--option=Debug::NoLocking=true"]
    for step in (["update"], ["--assume-yes", "--no-install-recommends", "--download-only", "install", *PACKAGES]):
        run_checked(["apt-get", "--quiet", *options, *step], {**os.environ, "LC_ALL": "C"})
    roots = {archive: folder / archive.stem for archive in sorted(state.glob("archives/*.deb"))}
    for archive, root in roots.items():
        run_checked(["dpkg-deb", "--extract", str(archive), str(root)])
    return list(roots.values())


def pack(programs: Mapping[str, KitFile], parts: Iterable[Part], licences: Mapping[str, KitFile]) -> bytes:
    """Return an archive; the same content always gives the same bytes."""
    listing = {"format": FORMAT, "architecture": platform.machine(), "digest": Kit(programs).version}
    text = json.dumps({**listing, "packages": [part._asdict() for part in parts]}, indent=1)
    entries = {_LISTING: KitFile(text.encode(), 0o644), **licences, **programs}
    buffer = io.BytesIO()
    with gzip.GzipFile("", "wb", 6, buffer, 0) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for name, file in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(file.content), file.mode
            archive.addfile(entry, io.BytesIO(file.content))
    return buffer.getvalue()


def read_archive(path: str, machine: str = "") -> tuple[str, dict[str, KitFile]]:
    """Return the architecture and the programs of an archive, for a host of this kind of ``machine``, or any.

    Raises :class:`KitBuildError` with one sentence.
    """
    try:
        with tarfile.open(path, "r:gz") as archive:
            entries = [(entry, archive.extractfile(entry)) for entry in archive if entry.isfile()]
            files = {entry.name: KitFile(file.read(), entry.mode & 0o777) for entry, file in entries if file}
        listing = json.loads(files.get(_LISTING, KitFile(b"{}", 0)).content)
        architecture = str(listing.get("architecture"))
        programs = {name: file for name, file in files.items() if _PATH.fullmatch(name)}
        found, intact = listing.get("format"), listing.get("digest") == Kit(programs).version
    except FileNotFoundError:
        raise KitBuildError(f"there is no kit at {path}: {_AGAIN}.") from None
    except (OSError, EOFError, AttributeError, ValueError, tarfile.TarError, zlib.error) as error:
        raise KitBuildError(f"{path} is damaged, or no kit ({as_phrase(error)}): {_AGAIN}.") from None
    if found not in (None, FORMAT):
        raise KitBuildError(f"{path} is a kit of version {found}, and this release reads version {FORMAT}: {_AGAIN}.")
    if not (found and intact and programs.keys() >= _NEEDED):
        raise KitBuildError(f"{path} is damaged, or no kit (its programs are not those that it lists): {_AGAIN}.")
    problem = problem_of(path, architecture, machine or architecture)
    if problem:
        raise KitBuildError(problem)
    return architecture, programs


def describe_kit(path: str) -> dict[str, str]:
    """Return what a host is asked about the kit that it is to get: ``path``, ``architecture`` and ``problem``."""
    known = {"path": path if path == HOST_KIT else os.path.abspath(os.path.expanduser(path))}
    try:
        return known if path == HOST_KIT else {**known, "architecture": read_archive(known["path"])[0]}
    except KitBuildError as error:
        return {**known, "problem": str(error)}


def problem_of(path: str, architecture: str, machine: str) -> str:
    """Return why one kind of machine cannot use the kit of another one; empty if it can."""
    if architecture == machine:
        return ""
    return f"{path} is for {architecture}, and this host is {machine}: make one with an agent_kit_host that is, too."
