# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the paths that a session needs in its containers lead in an image, and which images it refuses.

When the engine mounts something, it follows links of the image, and makes what is missing as root in what is mounted
there already. So each path is followed here, component by component, and the engine gets where it leads. Problems are
phrases that continue the name of an image.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from .mounts import FILES, HOME, KERNEL_FOLDERS, PROGRAMS, find_target_problem, is_within

FILE, FOLDER, LINK, FIFO, SOCKET, DEVICE = "file", "folder", "link", "FIFO", "socket", "device"
"""What a path of an image may be."""

FOLDERS = ("/opt/backendai", "/run/backendai", "/var/lib/backendai", "/var/log/backendai", HOME)
"""Where each container has folders of its session."""

CLIENTS = ("ssh", "scp", "sftp", "ssh-keygen")
"""The programs of SSH that a container gets if its image lacks them."""

_CLIENT_FOLDERS = (PROGRAMS, "/bin", "/usr/local/bin")

MAX_LINKS = 40
"""How many links one path may lead through, as in Linux."""

MAX_PARTS = 100
"""How many components are looked at for one path: each is a question to the engine."""


MAX_VOLUMES = 100
"""How many volumes an image may declare: the engine makes each of them, and each is looked at."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A path of an image: what it is, its permission bits, its size in bytes, and where it leads if it is a link."""

    kind: str
    mode: int = 0
    size: int = 0
    target: str = ""


Look = Callable[[str], "Entry | None"]
"""Returns what a path is, without following a link at its end; ``None`` if it is nothing."""


class Place(NamedTuple):
    """Where a path leads: a path without links, and what is there."""

    path: str
    entry: Entry | None


class Leads(NamedTuple):
    """Where each path that differs leads, and which of :data:`CLIENTS` the image lacks.

    ``lacking`` are the folders that it lacks for mounts below its home, by their targets.
    """

    leads: dict[str, str]
    clients: tuple[str, ...]
    lacking: dict[str, str]


def follow(path: str, look: Look) -> Place | str:
    """Return where a path leads in the image, inside of its root, or the problem with it."""
    pending = _parts(path)
    stack: list[tuple[str, Entry | None]] = []
    links = 0
    for _step in range(MAX_PARTS):
        if not pending:
            return Place(_join(stack), stack[-1][1] if stack else Entry(FOLDER))
        here = stack[-1][1] if stack else Entry(FOLDER)
        if here and here.kind != FOLDER:
            return f"has a {here.kind} at {_join(stack)}, and {path} needs a folder there: remove it from the image"
        part = pending.pop()
        if part == "..":
            # What is on the stack is no link, so its parent is the one before.
            stack = stack[:-1]
            continue
        at = posixpath.join(_join(stack), part)
        entry = look(at) if here else None
        if entry is None or entry.kind != LINK:
            stack.append((part, entry))
            continue
        links += 1
        if links > MAX_LINKS or not entry.target:
            return f"has a link at {at} that leads nowhere, or through too many links: remove it from the image"
        if entry.target.startswith("/"):
            stack = []
        pending += _parts(entry.target)
    return f"leads {path} through more than {MAX_PARTS} folders: build the image with fewer links"


def _parts(path: str) -> list[str]:
    """Return the components of a path, the first one last."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _join(stack: Iterable[tuple[str, Entry | None]]) -> str:
    return "/" + "/".join(part for part, _entry in stack)


_UNLINK = "remove that link from the image"
_OTHER_TARGET = "or choose another target in session_mounts"


def judge_image(look: Look, volumes: Collection[str], mounts: Collection[str]) -> Leads | str:
    """Return where the paths of a session lead in an image, or why it is refused.

    ``volumes`` are those that the image declares, as it spells them, ``mounts`` the targets of the session's mounts.
    """
    declared = _declared_problem(volumes)
    if declared:
        return declared
    clients = _missing_clients(look)
    own = _place(look, own_paths(clients))
    if isinstance(own, str):
        return own
    mounted = _place_mounts(look, mounts)
    if isinstance(mounted, str):
        return mounted
    problems = itertools.chain(
        _own_problems(own), _mount_problems(mounted, own), _volume_problems(look, volumes, {**mounted, **own})
    )
    leads = {target: place for target, place in {**mounted, **own}.items() if target != place}
    return next(problems, None) or Leads(leads, clients, _lacking(look, mounted, own[HOME]))


def volume_path(spelled: str) -> str:
    """Return the path of a volume as the engine has it, given an absolute one as an image spells it."""
    return f"/{posixpath.normpath(spelled).lstrip('/')}"


def _declared_problem(volumes: Collection[str]) -> str:
    """Return the problem with the volumes of an image that needs no look at it; empty without one."""
    if len(volumes) > MAX_VOLUMES:
        return f"declares {len(volumes)} VOLUMEs, and at most {MAX_VOLUMES} are taken: build the image with fewer"
    # Nothing can be mounted at exactly such a path, so the engine would fill a volume whenever somebody looks.
    relative = [spelled for spelled in volumes if not spelled.startswith("/")]
    if relative:
        problem = "which does not begin with a slash: build the image with an absolute path"
        return f"declares VOLUME {relative[0]}, {problem}"
    return ""


def judge_leads(look: Look, leads: Iterable[tuple[str, str]]) -> str:
    """Return the problem with paths by which a container was made, each with what it is for; empty without one.

    They had no links then, and its user may have put some.
    """
    for target, place in leads:
        found = follow(place, look)
        if isinstance(found, str):
            # Without the remedy, which is for an image.
            return found.rpartition(": ")[0]
        if found.path != place:
            return f"leads {_at(target, place)} to {found.path} by now"
        if found.entry and found.entry.kind not in (FILE, FOLDER):
            return f"has a {found.entry.kind} at {place} by now"
    return ""


def own_paths(clients: Iterable[str]) -> dict[str, str]:
    """Return where a container has files and folders of its session, and which of both they are.

    ``clients`` are those of :data:`CLIENTS` that its image lacks.
    """
    programs = [f"{PROGRAMS}/{name}" for name in clients]
    return {**dict.fromkeys(FOLDERS, FOLDER), **dict.fromkeys([*FILES, *programs], FILE)}


def _missing_clients(look: Look) -> tuple[str, ...]:
    def has(name: str) -> bool:
        # Where something was mounted, an image that was made of a container has an empty file.
        found = (follow(f"{folder}/{name}", look) for folder in _CLIENT_FOLDERS)
        return any(_is_program(place) for place in found)

    return tuple(name for name in CLIENTS if not has(name))


def _is_program(found: Place | str) -> bool:
    return isinstance(found, Place) and found.entry is not None and found.entry.kind == FILE and found.entry.size > 0


def _place(look: Look, wanted: Mapping[str, str]) -> dict[str, str] | str:
    """Return where paths lead at which there is nothing, or what is ``wanted``; else the first problem."""
    places = {}
    for target, kind in wanted.items():
        found = follow(target, look)
        if isinstance(found, str):
            return found
        if found.entry and found.entry.kind != kind:
            at = target if found.path == target else f"{found.path}, where {target} leads"
            needed = f"a session needs a {kind} or nothing there"
            return f"has a {found.entry.kind} at {at}, and {needed}: remove it from the image"
        places[target] = found.path
    return places


def _place_mounts(look: Look, targets: Iterable[str]) -> dict[str, str] | str:
    """Return where the mounts of a session are, or the first problem."""
    places: dict[str, str] = {}
    # The outer ones first: what they hide does not count.
    for target in sorted(targets, key=_depth):
        outer = [place for other, place in places.items() if is_within(target, other)]
        found = _place(functools.partial(_visible, look, outer), {target: FOLDER})
        if isinstance(found, str):
            return found
        places.update(found)
    return places


def _visible(look: Look, mounted: Iterable[str], path: str) -> Entry | None:
    """Return what a path of the image is where these paths are mounted: below them, it is not known."""
    return None if any(_is_inside(path, place) for place in mounted) else look(path)


def _lacking(look: Look, mounted: Mapping[str, str], home: str) -> dict[str, str]:
    """Return the folders in the home that are missing for mounts, but for those in another mount, by target."""
    parents = {
        target: follow(posixpath.dirname(place), look)
        for target, place in mounted.items()
        if _is_inside(place, home) and not any(_is_inside(place, other) for other in mounted.values())
    }
    found = {target: place.path for target, place in parents.items() if isinstance(place, Place) and not place.entry}
    return {target: path for target, path in found.items() if path != home}


def _own_problems(own: Mapping[str, str]) -> Iterator[str]:
    for target, place in ((target, place) for target, place in own.items() if target != place):
        others = [other for other in own if other != target and _overlap(place, own[other])]
        for other in [*others, *(folder for folder in KERNEL_FOLDERS if is_within(place, folder))]:
            yield f"leads {target} to {place}, which must not be at, in or above {other}: {_UNLINK}"


def _mount_problems(mounted: Mapping[str, str], own: Mapping[str, str]) -> Iterator[str]:
    for target, place in mounted.items():
        if place != target:
            kernel = [f"must not be in {folder}" for folder in KERNEL_FOLDERS if is_within(place, folder)]
            # Mounts in each other are the user's own business, unless a link of the image makes them so.
            others = [
                f"is in the mount at {other}"
                for other, at in mounted.items()
                if other != target and (place == at or (is_within(place, at) and not is_within(target, other)))
            ]
            led = f"leads the target {target} of session_mounts to {place}"
            for problem in filter(None, [find_target_problem(place), *kernel, *others]):
                yield f"{led}, which {problem}: {_UNLINK}, {_OTHER_TARGET}"
        for other, at in own.items():
            if is_within(at, place):
                yield f"would have {_at(other, at)} in the mount at {_at(target, place)}: {_UNLINK}, {_OTHER_TARGET}"
            elif is_within(place, at if other != HOME else f"{at}/.ssh"):
                yield f"would have the mount at {_at(target, place)} in {_at(other, at)}: {_UNLINK}, {_OTHER_TARGET}"


def _volume_problems(look: Look, volumes: Iterable[str], places: Mapping[str, str]) -> Iterator[str]:
    """Yield the problems with volumes. The engine mounts each but those at exactly the path of another mount.

    It mounts paths with fewer components first.
    """
    for spelled in volumes:
        path = volume_path(spelled)
        found = follow(path, functools.partial(_visible, look, [*places.values()]))
        if isinstance(found, str):
            yield f"declares VOLUME {spelled} and {found}"
            continue
        if path in places.values():
            continue
        for target, place in places.items():
            if _is_inside(found.path, place):
                problem = f"is in what a session mounts at {_at(target, place)}"
            elif is_within(place, found.path) and _depth(path) >= _depth(place):
                problem = f"leads to {found.path} and would hide what a session mounts at {_at(target, place)}"
            else:
                continue
            yield f"declares VOLUME {spelled}, which {problem}: build the image without that VOLUME"


def _overlap(path: str, other: str) -> bool:
    return is_within(path, other) or is_within(other, path)


def _is_inside(path: str, folder: str) -> bool:
    return path != folder and is_within(path, folder)


def _depth(path: str) -> int:
    return path.count("/")


def _at(target: str, place: str) -> str:
    return target if target == place else f"{target} (in the image {place})"
