# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which folders of an agent a session may mount, and where in its containers.

The control node judges a request, and each agent the plan and the real paths: a plan may come from a file that somebody
else wrote.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .session import Mount

HOME = "/home/work"

# Reserved for the session in each container: nothing can be mounted there, or inside.
RESERVED = ("/opt/backendai", "/run/backendai", "/var/lib/backendai", "/var/log/backendai", f"{HOME}/.ssh")

# Where each container has files of its session, and of the engine: nothing can be mounted there.
FILES = (
    *("/etc/hosts", "/etc/passwd", "/etc/group", "/etc/hosts.allow", "/etc/hosts.deny", "/etc/profile.d/backendai.sh"),
    *("/etc/hostname", "/etc/resolv.conf"),
)

# Where containers get what their images lack.
PROGRAMS = "/usr/bin"

# Never mounted, nor anything inside: with them, a container controls its agent.
KERNEL_FOLDERS = ("/proc", "/sys", "/dev")
ENGINE_FOLDERS = ("/run/docker", "/run/containerd", "/var/lib/docker", "/var/lib/containerd")


def find_path_problem(path: str) -> str:
    """Return why a path cannot be that of a mount, empty if it can.

    ``..`` could hide a folder, and ``:`` is the separator of bind options.
    """
    odd = any(mark in path for mark in ":\n\r\0")
    if path.startswith("/") and not path.startswith("//") and path == posixpath.normpath(path) and not odd:
        return ""
    return "must be an absolute path without //, ., .. or :"


def find_target_problem(target: str) -> str:
    """Return why nothing can be mounted at ``target`` in a container; empty if a folder can."""
    hidden = [path for path in (HOME, *RESERVED, *FILES, PROGRAMS) if is_within(path, target)]
    if target.startswith("/") and hidden:
        return f"would hide {hidden[0]}"
    if any(is_within(target, path) for path in RESERVED):
        return f"must not be in a reserved folder: {', '.join(RESERVED)}"
    return ""


def find_mount_problem(mounts: Iterable[Mount]) -> str:
    """Return the first problem of the mounts of a plan, as a phrase; empty if there is none."""
    for mount in mounts:
        for name, path, problem in (
            ("source", mount.source, find_path_problem(mount.source)),
            ("target", mount.target, find_path_problem(mount.target) or find_target_problem(mount.target)),
        ):
            if problem:
                return f"session_mounts: the {name} {path!r} {problem}"
    return ""


def is_within(path: str, folder: str) -> bool:
    """Return whether a path is a folder or is inside of it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


class Source(NamedTuple):
    """The ``path`` of a folder as a session mounts it, with what decides whether an agent may.

    Without ``strict`` it may lead through links, and the engine gets the real path. With it, it is opened component by
    component without following links, only root may write to each folder before the last, and the engine gets it as it
    is. All that is below a ``read_only`` one has to be read-only.
    """

    path: str
    strict: bool = False
    read_only: bool = False

    @classmethod
    def of(cls, mount: Mount) -> Source:
        """Return the source of a mount."""
        return cls(mount.source, mount.strict, mount.read_only)

    @classmethod
    def parse(cls, word: str) -> Source:
        """Return the source that :attr:`word` named."""
        if word.startswith("/"):
            return cls(word)
        flags, _colon, path = word.partition(":")
        return cls(path, "strict" in flags, "read-only" in flags)

    @property
    def word(self) -> str:
        """The source as one word: its path, after what differs from a plain one."""
        flags = [name for name, is_set in (("strict", self.strict), ("read-only", self.read_only)) if is_set]
        return f"{','.join(flags)}:{self.path}" if flags else self.path


@dataclasses.dataclass(frozen=True)
class Unusable:
    """Why an agent does not mount a path: the ``problem``, such as "is not a folder", and an ``explanation``."""

    problem: str
    explanation: str = ""


MISSING = Unusable("is not a folder", "the source must exist there")


def unsafe(component: str, problem: str) -> Unusable:
    """Return why a strict source is not mounted: somebody other than root decides where this component leads."""
    return Unusable(
        "may not be mounted",
        f"{component} {problem}, so that others than root decide which folder that is: give {component} to root and let"
        " nobody else write there, or name a folder in the policy whose path has no such component",
    )


def writable_below(path: str, mounts: Sequence[str]) -> Unusable:
    """Return why a read-only source is not mounted by an engine that leaves the file systems in it writable."""
    return Unusable(
        "may not be mounted read-only",
        f"the engine would leave {', '.join(mounts[:3])} below {path} writable: mount these by themselves, unmount"
        " them, or upgrade the engine to 25 or later",
    )


def describe_unusable(sources: Mapping[str, Unusable], agent: str) -> str:
    """Return a phrase about the first source that an agent does not mount, and those with the same problem.

    ``sources`` are by their words.
    """
    first = next(iter(sources.values()))
    same = ", ".join(Source.parse(word).path for word, unusable in sources.items() if unusable == first)
    explanation = f": {first.explanation}" if first.explanation else ""
    return f"session_mounts: {same} {first.problem} on {agent}{explanation}"


@dataclasses.dataclass(frozen=True)
class MountRules:
    """What an agent lets sessions mount: folders in ``roots``, but none that controls the agent.

    ``own`` are more folders that do: those of the collection and of the engine. All are real paths: absolute, without
    symbolic links.
    """

    roots: Sequence[str] = ("/",)
    own: Sequence[str] = ()

    @property
    def closed(self) -> tuple[str, ...]:
        """The folders that are not mounted, nor what is in them, nor what contains them."""
        return tuple(dict.fromkeys((*KERNEL_FOLDERS, *self.own, *ENGINE_FOLDERS)))

    def find_refusal(self, path: str) -> Unusable | None:
        """Return why a real path is not mounted; ``None`` if it may be."""
        problem = find_path_problem(path) or self._find_conflict(path)
        if not problem and not any(is_within(path, root) for root in self.roots):
            problem = "is not in agent_mount_roots"
        if not problem:
            return None
        roots = f"folders in {', '.join(self.roots)}" if self.roots else "none, because agent_mount_roots is empty"
        exceptions = f", except what is, contains or is in {', '.join(self.closed)}" if self.roots else ""
        return Unusable("may not be mounted", f"its real path {path!r} {problem}; allowed are {roots}{exceptions}")

    def _find_conflict(self, path: str) -> str:
        for closed in self.closed:
            if path == closed:
                return f"is {closed}"
            if is_within(path, closed):
                return f"is in {closed}"
            if is_within(closed, path):
                return f"contains {closed}"
        return ""
