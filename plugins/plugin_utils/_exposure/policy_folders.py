# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks the folders of managers' policies: asks managers and agents, and collects what they say."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils._model.plain_data import DataError, to_plain
from ...module_utils._module import CAPACITY_OPTIONS
from ..agent_calls import Asks
from ..host_link import Template
from ..host_request import coerce_variables
from .answers import Answers, Shown, read_answer

POLICY_SECONDS, FOLDERS_SECONDS = 60, 300
"""The time limits of a manager that reads its policy, and of a host that looks at folders."""

_MOUNT_ROOTS = {"mount_roots": CAPACITY_OPTIONS["mount_roots"]}


@dataclasses.dataclass(frozen=True, order=True)
class _Folder:
    source: str
    read_only: bool


@dataclasses.dataclass(frozen=True)
class _Policy:
    folders: tuple[_Folder, ...]


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


@dataclasses.dataclass(frozen=True)
class FolderHosts:
    """The hosts whose folders are checked, with what asks them: ``present`` are the managers that have a policy."""

    agents: Sequence[str]
    managers: Sequence[str]
    present: Sequence[str]
    ask_agents: Asks
    ask_managers: Asks
    shown: Shown


def check_folders(hosts: FolderHosts) -> FolderResults:
    """Return what is wrong with the folders of all policies, as agents and managers see them."""
    policies = hosts.ask_managers.ask("policy", hosts.shown(hosts.present), lambda *_host: {}, POLICY_SECONDS)
    plan = plan_folder_checks(hosts.present, policies, hosts.agents, _look(hosts, FolderPlan(), hosts.agents))
    if not plan.folders:
        return collect_folder_results(plan, hosts.managers, hosts.agents, {})
    found = _look(hosts, plan, [*hosts.agents, *hosts.managers])
    return collect_folder_results(plan, hosts.managers, hosts.agents, found)


def _look(hosts: FolderHosts, plan: FolderPlan, names: Sequence[str]) -> Answers:
    """Return what hosts say of the folders that are planned; agents also say who has sessions."""
    asked = {"folders": to_plain(plan.folders), "users": list(plan.users)}

    def of_agent(_name: str, variables: Mapping[str, Any], template: Template) -> dict[str, Any]:
        return {**asked, **coerce_variables(_MOUNT_ROOTS, "agent_", variables, template), "kind": "agent"}

    def of_manager(*_host: object) -> dict[str, Any]:
        return {**asked, "kind": "manager"}

    shown = hosts.shown(list(dict.fromkeys(names)))
    agents = [name for name in shown if name in hosts.agents]
    managers = [name for name in shown if name not in hosts.agents]
    return {
        **hosts.ask_agents.ask("policy_folders", agents, of_agent, FOLDERS_SECONDS),
        **hosts.ask_managers.ask("policy_folders", managers, of_manager, FOLDERS_SECONDS),
    }


def plan_folder_checks(managers: Sequence[str], policies: Answers, agents: Sequence[str], looks: Answers) -> FolderPlan:
    """Return what agents and managers are asked, from what they have said first."""
    folders: set[_Folder] = set()
    users: set[str] = set()
    unread: list[str] = []
    for manager in managers:
        try:
            folders.update(read_answer(_Policy, policies.get(manager)).folders)
        except DataError as error:
            unread.append(f"the policy of {manager} is not known: {error}")
    for agent in agents:
        try:
            users.update(read_answer(_Users, looks.get(agent)).users)
        except DataError as error:
            unread.append(f"who has sessions on {agent} is not known: {error}")
    return FolderPlan(tuple(sorted(folders)), tuple(sorted(users)), tuple(unread))


def collect_folder_results(
    plan: FolderPlan, managers: Sequence[str], agents: Sequence[str], answers: Answers
) -> FolderResults:
    """Return what the check has found on agents and managers."""
    if not managers or not plan.folders:
        nothing = "no policy has folders" if managers else FolderResults.nothing
        return FolderResults(unread=plan.unread, nothing=nothing)
    problems: list[str] = []
    unprotected: list[str] = []
    unread = [*plan.unread]
    for host in dict.fromkeys([*agents, *managers]):
        try:
            found = read_answer(_Found, answers.get(host))
        except DataError as error:
            unread.append(f"the folders on {host} were not checked: {error}")
            continue
        problems += [f"{host}: {problem}" for problem in found.problems]
        unprotected += [f"{host}: {problem}" for problem in found.unprotected]
    return FolderResults(tuple(problems), tuple(unprotected), tuple(unread), nothing="")
