# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What users may have: ``/etc/backendai/policy.yml``.

``python -m backendai_manager.policy FILE`` checks one; with ``--folders`` it also prints its folders, as JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pwd
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from .errors import CommandError
from .files import read_regular_file
from .image_patterns import matches
from .options import PREFIX, Options, load_options, parse_time
from .paths import Paths

MAX_POLICY = 1 << 20
DRIVER = f"{PREFIX}network_driver"
"""The option whose values ``drivers`` lists."""

FOLDERS = "--folders"
OWN = "own"
"""The word for the user's own uid and gid."""

USER = "{user}"
"""What stands for the user's name in the source of a named folder."""

MAX_ID = (1 << 31) - 1
MAX_GROUPS = 64
"""How many groups a container has at most."""

MAX_APPS = 32
"""How many apps a session may have, whatever a policy says."""

MAX_LIFETIME = 1 << 31
MAX_CORES = 1024
MAX_WAITING_IN_ALL = 2_000
"""How many sessions of all users may wait."""

DEFAULT_APP = "terminal"
"""The one app that sessions may get unasked: it is in the kit, so every image has it."""

_BYTES = re.compile(r"[1-9][0-9]{0,8}[mgt]")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
# Directories have names such as "EXAMPLE\domain users". Nothing of it is a template, and a number is no name.
_GROUP = re.compile(r"(?![0-9]+\Z)\w[\w.@+$ \\-]{0,127}")


class PolicyError(CommandError):
    """The policy is not valid: one sentence in each line."""


@dataclasses.dataclass(frozen=True)
class NamedFolder:
    """A folder of the agents that users mount by its name; their own name replaces ``{user}`` in ``source``.

    Only root may decide where it is: a user who writes to a folder above it would choose what the next session mounts.
    """

    source: str
    target: str
    read_only: bool = False

    def mount(self, user: str) -> dict[str, Any]:
        """Return the mount of a user, as in ``session_mounts``."""
        source = self.source.replace(USER, user)
        return {"source": source, "target": self.target, "read_only": self.read_only, "strict": True}


@dataclasses.dataclass(frozen=True)
class Policy:
    """What every user may have. ``images`` are patterns; a ``uid`` or ``gid`` of ``None`` is the user's own.

    ``groups`` are the names of those groups that sessions of their members have as well, ``None`` for all of the user.

    A fixed ``uid`` is that of no account: who runs a setuid program that a session has left in a shared folder would be
    that account. ``max_lifetime`` is in seconds, 0 for no bound. ``max_apps`` are those of one session. ``options`` are
    the options of a run that a request may contain. ``per_gpu`` are the cores and the memory that come with each GPU
    unless a request names its own, ``default_apps`` the apps of a session that can have them.
    """

    images: tuple[str, ...]
    resource_groups: tuple[str, ...] = ("default",)
    drivers: tuple[str, ...] = ("vxlan",)
    mounts: Mapping[str, NamedFolder] = dataclasses.field(default_factory=dict)
    uid: int | None = None
    gid: int | None = None
    groups: tuple[str, ...] | None = None
    max_lifetime: int = 0
    max_priority: int = 10
    options: tuple[str, ...] = ()
    links_by_path: bool = False
    max_apps: int = MAX_APPS
    max_sessions: int = 50
    max_waiting: int = 100
    max_containers: int = 1024
    per_gpu: Mapping[str, int | str] = dataclasses.field(default_factory=dict)
    default_apps: tuple[str, ...] = (DEFAULT_APP,)

    @property
    def limits(self) -> dict[str, int]:
        """How much each user may have, and how many sessions of all users may wait, for the playbooks."""
        own = {name: getattr(self, name) for name in ("max_sessions", "max_waiting", "max_containers")}
        return {**own, "max_waiting_in_all": MAX_WAITING_IN_ALL}

    def group_rules(self, operators_group: str) -> dict[str, Any]:
        """Return which groups of their users sessions get, for the playbooks: never that of operators."""
        return {"allowed": OWN if self.groups is None else [*self.groups], "closed": [operators_group]}

    def allows_image(self, image: str) -> bool:
        """Return whether an image matches a pattern."""
        return any(matches(image, pattern) for pattern in self.images)


def parse_policy(text: bytes, options: Options, *, once_valid: bool = False) -> Policy:
    """Return a policy from its YAML. Raises :class:`PolicyError` with all problems at once.

    From one that was valid once, what was removed since is left out: it allows what there is no more.
    """
    data = _read_mapping(text)
    known = [field.name for field in dataclasses.fields(Policy)]
    problems = [
        f"{str(name)[:80]!r} is not a word of a policy; {options.hint(str(name), known)}"
        for name in data
        if name not in known
    ]
    if "images" not in data:
        problems.append(
            "images is required: patterns of the images that users may run, such as registry.example.com/*."
        )
    if isinstance(data.get("drivers"), list):
        removals = {driver: options.removal(DRIVER, driver) for driver in map(str, data["drivers"])}
        data["drivers"] = [driver for driver in data["drivers"] if not removals[str(driver)]]
        problems += [f"drivers: {name!r} {phrase}." for name, phrase in removals.items() if phrase and not once_valid]
    values = {}
    for name, parse in _PARSERS.items():
        if name in data:
            try:
                values[name] = parse(data[name])
            except ValueError as error:
                problems.append(f"{name} {error}.")
    problems += [
        f"options: {option!r} cannot be a user's; {options.hint(option, options.of_runs)}"
        for option in values.get("options", ())
        if f"{PREFIX}{option}" not in options.of_runs
    ]
    if problems:
        raise PolicyError("\n".join(problems))
    return Policy(**values)


def _read_mapping(text: bytes) -> dict[Any, Any]:
    try:
        data = yaml.safe_load(text.decode())
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise PolicyError(f"it is not YAML{where}: {error.problem}.") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise PolicyError("it is not YAML in UTF-8.") from None
    if not isinstance(data, dict):
        raise PolicyError("it must be a mapping.")
    return data


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(entry, str) and _WORD.fullmatch(entry) for entry in value):
        return tuple(value)
    raise ValueError("must be a list of names")


def _drivers(value: Any) -> tuple[str, ...]:
    known = ("vxlan", "host")
    if isinstance(value, list) and all(entry in known for entry in value):
        return tuple(value)
    raise ValueError(f"must be a list of {', '.join(known)}")


def _patterns(value: Any) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(entry, str) and entry and entry == entry.strip() for entry in value):
        return tuple(value)
    raise ValueError("must be a list of patterns, such as [registry.example.com/*, 'python:*']")


def _folders(value: Any) -> dict[str, NamedFolder]:
    if not isinstance(value, dict):
        raise ValueError("must be a mapping of names to source, target and read_only")
    return {_folder_name(name): _folder(name, entry) for name, entry in value.items()}


def _folder_name(name: Any) -> str:
    if isinstance(name, str) and _WORD.fullmatch(name):
        return name
    raise ValueError(f"has the name {str(name)[:40]!r}: use letters, digits, _, . and -")


def _folder(name: Any, entry: Any) -> NamedFolder:
    if not isinstance(entry, dict) or not {"source", "target"} <= set(entry) <= {"source", "target", "read_only"}:
        raise ValueError(f"has {name!r}, which must have source and target, and may have read_only")
    source, target, read_only = entry["source"], entry["target"], entry.get("read_only", False)
    for key, path in (("source", source), ("target", target)):
        if not isinstance(path, str) or not path.startswith("/") or ".." in path.split("/") or not path.isprintable():
            raise ValueError(
                f"has {name!r} with the {key} {str(path)[:80]!r}, which is not an absolute path without .."
            )
    if "{" in source.replace(USER, "") or "}" in source.replace(USER, "") or "{" in target or "}" in target:
        raise ValueError(f"has {name!r} with a placeholder that is not {USER} in its source")
    if not isinstance(read_only, bool):
        raise ValueError(f"has {name!r} with read_only, which must be true or false")
    # As sessions have them, so that what waits is compared with the same text.
    return NamedFolder(source.rstrip("/") or "/", target.rstrip("/") or "/", read_only)


def _number(least: int, most: int, zero: bool = False) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        fits = isinstance(value, int) and not isinstance(value, bool)
        if fits and (least <= value <= most or (zero and value == 0)):
            return int(value)
        raise ValueError(f"must be a whole number from {least} to {most}{', or 0 for no bound' if zero else ''}")

    return parse


def _lifetime(value: Any) -> int:
    return _number(60, MAX_LIFETIME, zero=True)(parse_time(value))


def _id(value: Any) -> int | None:
    if value == OWN:
        return None
    try:
        return _number(1, MAX_ID)(value)
    except ValueError as error:
        raise ValueError(f"{error}, or {OWN} for the user's own") from None


def _uid(value: Any) -> int | None:
    uid = _id(value)
    name = "" if uid is None else account_name(uid)
    if name:
        raise ValueError(
            f"must not be {uid}, the account {name!r} of this host: who starts a setuid program that a session has left"
            f" in a shared folder would be {name}; leave it out for the user's own, or choose a number that no account"
            " has"
        )
    return uid


def _groups(value: Any) -> tuple[str, ...] | None:
    if value == OWN:
        return None
    if not isinstance(value, list) or not all(isinstance(name, str) and _GROUP.fullmatch(name) for name in value):
        raise ValueError(f"must be {OWN}, or a list of names of groups, such as [project-a, project-b]")
    if len(value) > MAX_GROUPS:
        raise ValueError(f"has {len(value)} names, and a container has at most {MAX_GROUPS} groups")
    return tuple(value)


def account_name(uid: int) -> str:
    """Return the name of the account of this host with a uid; empty if there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _per_gpu(value: Any) -> dict[str, int | str]:
    given = value if isinstance(value, dict) else {"": None}
    cpu, mem = given.get("cpu", 1), given.get("mem", "1g")
    fits = isinstance(cpu, int) and not isinstance(cpu, bool) and 1 <= cpu <= MAX_CORES
    if fits and isinstance(mem, str) and _BYTES.fullmatch(mem) and {*given} <= {"cpu", "mem"}:
        return dict(given)
    raise ValueError("must be a mapping with cpu, a whole number, and mem, such as {cpu: 8, mem: 64g}, or one of them")


def _default_apps(value: Any) -> tuple[str, ...]:
    if value in ([], [DEFAULT_APP]):
        return tuple(value)
    raise ValueError(f"must be [{DEFAULT_APP}], or [] for none")


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("must be true or false")


_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "images": _patterns,
    "resource_groups": _words,
    "drivers": _drivers,
    "mounts": _folders,
    "uid": _uid,
    "gid": _id,
    "groups": _groups,
    "max_lifetime": _lifetime,
    "max_priority": _number(0, 100),
    "options": _words,
    "links_by_path": _flag,
    "max_apps": _number(0, MAX_APPS),
    "max_sessions": _number(1, 10_000),
    "max_waiting": _number(1, MAX_WAITING_IN_ALL),
    "max_containers": _number(1, 1_000_000),
    "per_gpu": _per_gpu,
    "default_apps": _default_apps,
}


def load_policy(path: Path, last_good: Path, options: Options) -> tuple[Policy, str]:
    """Return the policy of a file and no warning; if it is bad, the last good one and a warning.

    Raises :class:`PolicyError` if there is no good one.
    """
    try:
        text = read_regular_file(path, MAX_POLICY)
        policy = parse_policy(text, options)
    except (OSError, ValueError, PolicyError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        cause = f"{path}: {reason}"
        try:
            kept = parse_policy(read_regular_file(last_good, MAX_POLICY), options, once_valid=True)
        except (OSError, ValueError, PolicyError):
            raise PolicyError(f"{cause}\nNothing can be started before an operator corrects it.") from None
        return kept, f"{cause}\nThe last valid policy counts until an operator corrects it."
    _keep(last_good, text)
    return policy, ""


def _keep(path: Path, text: bytes) -> None:
    """Write the copy that counts when the policy is bad; without it, all else works."""
    with contextlib.suppress(OSError):
        if path.exists() and path.read_bytes() == text:
            return
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".policy-")
        try:
            with open(handle, "wb") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise


def main() -> int:
    """Check the policy whose file is the last argument: 0 if it is valid, else 2."""
    *flags, file = sys.argv[1:] or [""]
    if not file or flags not in ([], [FOLDERS]):
        sys.stderr.write(f"usage: python -m backendai_manager.policy [{FOLDERS}] FILE\n")
        return 2
    path, paths = Path(file), Paths()
    sys.path.append(str(paths.collections))
    try:
        policy = parse_policy(read_regular_file(path, MAX_POLICY), load_options(paths.specification))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        sys.stderr.write(f"{path}: {reason}.\n")
        return 2
    except CommandError as error:
        sys.stderr.write("".join(f"{path}: {line}\n" for line in str(error).splitlines()))
        return 2
    if flags:
        folders = [{"source": folder.source, "read_only": folder.read_only} for folder in policy.mounts.values()]
        sys.stdout.write(f"{json.dumps(folders)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
