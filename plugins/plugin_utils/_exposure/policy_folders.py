# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans the check of the folders of managers' policies, and collects what agents and managers say about them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils._model.plain_data import DataError, from_plain
from ..agent_results import describe_missing_result

# The variables with the results of tasks: on managers the policy's folders, on agents the users with sessions, and on
# both what was found.
POLICY, USERS, FOUND = "__policy_folders_of", "__policy_users", "__policy_folders"

HostVars = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, order=True)
class _Folder:
    source: str
    read_only: bool


@dataclasses.dataclass(frozen=True)
class _Users:
    users: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _Found:
    problems: tuple[str, ...]
    unprotected: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class FolderPlan:
    """The ``folders`` of all policies, and the ``users`` who have sessions. ``unread`` says what is not known."""

    folders: tuple[_Folder, ...] = ()
    users: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class FolderResults:
    """What is wrong with the folders, one phrase each: ``problems`` on agents, ``unprotected`` file systems everywhere.

    ``unread`` says what was not checked, and ``nothing`` why there was nothing to check.
    """

    problems: tuple[str, ...] = ()
    unprotected: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    nothing: str = "there are no managers"


def plan_folder_checks(managers: Iterable[str], agents: Iterable[str], hostvars: HostVars) -> FolderPlan:
    """Return what agents and managers are asked, from what they have said first."""
    folders: set[_Folder] = set()
    users: set[str] = set()
    unread: list[str] = []
    for manager in managers:
        result = hostvars[manager].get(POLICY) or {}
        if result.get("skipped"):
            continue
        try:
            if result.get("rc") != 0:
                raise DataError(str(result.get("stderr") or "").strip() or describe_missing_result(result))
            folders.update(from_plain(_Folder, entry, "its folder") for entry in json.loads(result["stdout"]))
        except (DataError, ValueError, TypeError) as error:
            unread.append(f"the policy of {manager} is not known: {' '.join(str(error).split())}")
    for agent in agents:
        result = hostvars[agent].get(USERS) or {}
        try:
            users.update(_parse(_Users, result).users)
        except DataError:
            unread.append(f"who has sessions on {agent} is not known: {describe_missing_result(result)}")
    return FolderPlan(tuple(sorted(folders)), tuple(sorted(users)), tuple(unread))


def read_plan(result: Mapping[str, Any]) -> FolderPlan:
    """Return the plan in the result of its task. Raises :class:`DataError`."""
    plan: FolderPlan = _parse(FolderPlan, result)
    return plan


def collect_folder_results(
    plan: FolderPlan, managers: Sequence[str], agents: Sequence[str], hostvars: HostVars
) -> FolderResults:
    """Return what the check has found on agents and managers."""
    if not managers or not plan.folders:
        nothing = "no policy has folders" if managers else FolderResults.nothing
        return FolderResults(unread=plan.unread, nothing=nothing)
    problems: list[str] = []
    unprotected: list[str] = []
    unread = [*plan.unread]
    for host in dict.fromkeys([*agents, *managers]):
        result = hostvars[host].get(FOUND) or {}
        try:
            found = _parse(_Found, result)
        except DataError:
            unread.append(f"the folders on {host} were not checked: {describe_missing_result(result)}")
            continue
        problems += [f"{host}: {problem}" for problem in found.problems]
        unprotected += [f"{host}: {problem}" for problem in found.unprotected]
    return FolderResults(tuple(problems), tuple(unprotected), tuple(unread), nothing="")


def _parse(kind: type[Any], result: Mapping[str, Any]) -> Any:
    """Return the fields of a task's result. Raises :class:`DataError`."""
    names = {field.name for field in dataclasses.fields(kind)}
    return from_plain(kind, {name: result[name] for name in names & result.keys()}, "its reply is damaged")
