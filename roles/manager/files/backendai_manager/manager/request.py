# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The request for a session: what a user gives, completed and bounded by the policy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import RefusedError
from ..options import PREFIX, Options, parse_time
from ..policy import NamedFolder, Policy
from .identity import Caller
from .request_size import find_excess

DEFAULT_PRIORITY = 10
DEFAULT_GROUP, DEFAULT_DRIVER = "default", "vxlan"
BY_HOST_NAME = "none"
"""The ``path`` of an app that has no link by path."""

_NUMBER = re.compile(r"[0-9]{1,18}")


def build_request(given: Mapping[str, Any], policy: Policy, options: Options, caller: Caller) -> dict[str, Any]:
    """Return the options of a session by their full names, for ``session_request_path``.

    Raises :class:`RefusedError` with all problems at once. Values that the policy says nothing about are checked by the
    playbook.
    """
    problems: list[str] = []
    request = _names(problems, given, policy, options)
    problems += find_excess(request)
    _check_shapes(problems, request)
    if not problems:
        _bound(problems, request, policy, options)
        _mount(problems, request, policy, caller)
        _open_apps(problems, request, policy)
    if problems:
        raise RefusedError("\n".join(problems))
    request["session_uid"] = caller.uid if policy.uid is None else policy.uid
    request["session_gid"] = caller.gid if policy.gid is None else policy.gid
    return request


def _names(problems: list[str], given: Mapping[str, Any], policy: Policy, options: Options) -> dict[str, Any]:
    """Return the given options by their full names, without those that were left empty."""
    allowed = (*options.of_sessions, *(f"{PREFIX}{name}" for name in policy.options))
    request: dict[str, Any] = {}
    for word, value in given.items():
        name = word if word.startswith(PREFIX) else f"{PREFIX}{word}"
        if name in ("session_uid", "session_gid"):
            problems.append(f"{word} is set by the policy; leave it out.")
        elif name in allowed and name in request:
            problems.append(f"{word} is given twice.")
        elif name in allowed:
            request[name] = value
        elif name in options.specification:
            problems.append(f"{word} is an option of operators; leave it out.")
        else:
            shown = word if len(word) <= 80 and word.isprintable() else f"{word[:40]!r}…"
            problems.append(f"{shown} is not a word of a session; {options.hint(word, allowed)}")
    return {name: value for name, value in request.items() if value not in ("", None)}


def _check_shapes(problems: list[str], request: dict[str, Any]) -> None:
    """Refuse text where the policy looks into a value: the playbook would read it as JSON."""
    for name, kind, phrase in (
        ("session_roles", dict, "a mapping of roles"),
        ("session_mounts", list, "a list of names"),
        ("session_apps", list, "a list of apps"),
        ("session_image", str, "a text"),
        ("session_resource_group", str, "a text"),
        ("session_network_driver", str, "a text"),
        ("session_authorized_keys", list, "a list of public keys"),
    ):
        if name in request and not isinstance(request[name], kind):
            problems.append(f"{name.removeprefix(PREFIX)} must be {phrase}.")
    roles = request.get("session_roles")
    for role, content in roles.items() if isinstance(roles, dict) else ():
        if not isinstance(content, dict) or not isinstance(content.get("image", ""), str):
            problems.append(f"roles: {str(role)[:40]!r} must be a mapping, and its image a text.")


def _bound(problems: list[str], request: dict[str, Any], policy: Policy, options: Options) -> None:
    """Refuse what is beyond the policy, and set what has a default beyond it."""
    # The playbook takes texts without the space around them.
    images = [request["session_image"]] if "session_image" in request else []
    images += [content["image"] for content in request.get("session_roles", {}).values() if content.get("image")]
    problems += [
        _outside("image", image.strip(), policy.images) for image in images if not policy.allows_image(image.strip())
    ]
    for name, default, allowed in (
        ("resource_group", DEFAULT_GROUP, policy.resource_groups),
        ("network_driver", DEFAULT_DRIVER, policy.drivers),
    ):
        fallback = default if default in allowed or not allowed else allowed[0]
        value = request[f"{PREFIX}{name}"] = str(request.get(f"{PREFIX}{name}", fallback)).strip()
        removal = options.removal(f"{PREFIX}{name}", value)
        if removal:
            problems.append(f"{name}: {value} {removal}.")
        elif value not in allowed:
            problems.append(_outside(name, value, allowed))
    priority = str(request.get("session_priority", min(DEFAULT_PRIORITY, policy.max_priority))).strip()
    if not _NUMBER.fullmatch(priority) or int(priority) > policy.max_priority:
        problems.append(f"priority: {priority[:20]} is not allowed; it may be 0 to {policy.max_priority}.")
    else:
        request["session_priority"] = int(priority)
    lifetime = request.get("session_max_lifetime", 0)
    try:
        # So that it has the same bound if it waits.
        if not parse_time(lifetime) and policy.max_lifetime:
            request["session_max_lifetime"] = policy.max_lifetime
    except ValueError as error:
        problems.append(f"max_lifetime: {str(lifetime)[:40]!r} {error}.")


def _outside(name: str, value: str, allowed: tuple[str, ...]) -> str:
    shown = value if len(value) <= 200 and value.isprintable() else f"{value[:40]!r}…"
    return f"{name}: {shown} is not allowed by the policy; allowed are {', '.join(allowed) or 'none'}."


def _mount(problems: list[str], request: dict[str, Any], policy: Policy, caller: Caller) -> None:
    """Replace the names of folders by the policy's folders."""
    folders = [_find_folder(problems, name, policy) for name in request.get("session_mounts", ())]
    if folders:
        request["session_mounts"] = [folder.mount(caller.name) for folder in folders if folder]


def _count_apps(problems: list[str], count: int, policy: Policy) -> None:
    if count > policy.max_apps:
        problems.append(f"apps: {count} are not allowed by the policy; a session may have {policy.max_apps}.")


def _find_folder(problems: list[str], name: Any, policy: Policy) -> NamedFolder | None:
    folder = policy.mounts.get(name) if isinstance(name, str) else None
    if folder is None:
        problems.append(_outside("mounts", str(name), tuple(policy.mounts)))
    return folder


def _open_apps(problems: list[str], request: dict[str, Any], policy: Policy) -> None:
    """Let apps have links by host name only: links by path share one origin, and so their users' cookies."""
    _count_apps(problems, len(request.get("session_apps", ())), policy)
    if policy.links_by_path or "session_apps" not in request:
        return
    apps = [{"name": app} if isinstance(app, str) else app for app in request["session_apps"]]
    for app in apps:
        if not isinstance(app, dict) or app.get("path") not in (None, BY_HOST_NAME):
            problems.append("apps: links by path are off, because all users share one origin; leave path out.")
            return
    request["session_apps"] = [{**app, "path": BY_HOST_NAME} for app in apps]


def check_waiting(spec: Mapping[str, Any], policy: Policy, caller: Caller) -> str:
    """Return why a request that waits is not allowed any more; empty if it is.

    ``spec`` is the request as the queue has stored it.
    """
    folders = [folder.mount(caller.name) for folder in policy.mounts.values()]
    mounts = [
        {name: mount.get(name) for name in ("source", "target", "read_only", "strict")}
        for mount in spec.get("mounts") or ()
    ]
    images = [spec.get("image"), *(role.get("image") for role in spec.get("roles") or ())]
    by_path = [app.get("name") for app in spec.get("apps") or () if app.get("path") != BY_HOST_NAME]
    lifetime, priority = spec.get("max_lifetime") or 0, spec.get("priority", 0)
    problems = [
        *(_outside("image", str(image), policy.images) for image in images if not policy.allows_image(str(image))),
        *(_outside("mounts", str(mount["source"]), tuple(policy.mounts)) for mount in mounts if mount not in folders),
        *(
            _outside(name, str(spec.get(name)), allowed)
            for name, allowed in (("resource_group", policy.resource_groups), ("network_driver", policy.drivers))
            if spec.get(name) not in allowed
        ),
        *(
            f"{name}: {spec.get(name)} is not what the policy says now."
            for name, fixed, own in (("uid", policy.uid, caller.uid), ("gid", policy.gid, caller.gid))
            if spec.get(name) != (own if fixed is None else fixed)
        ),
    ]
    _count_apps(problems, len(spec.get("apps") or ()), policy)
    if policy.max_lifetime and not 0 < lifetime <= policy.max_lifetime:
        problems.append(f"max_lifetime: {lifetime} is not allowed; it may be at most {policy.max_lifetime}.")
    if priority > policy.max_priority:
        problems.append(f"priority: {priority} is not allowed; it may be 0 to {policy.max_priority}.")
    if by_path and not policy.links_by_path:
        problems.append(f"apps: {by_path[0]} has a link by path, and those are off now.")
    return problems[0] if problems else ""
