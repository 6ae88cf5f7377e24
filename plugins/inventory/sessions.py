# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The containers of running sessions, asked of the agents."""

from __future__ import annotations

DOCUMENTATION = r"""
name: sessions
short_description: Containers of running sessions as hosts
version_added: 0.1.0
description:
  - Asks every agent which sessions it holds and which of their containers run, with one command over its own
    connection, and makes a host of each container. Sessions that are still being created are left out.
  - A host is called C(<hostname>.<session name>), such as C(main1.train-llm). Where two sessions have the same name,
    the first eight characters of the session's id follow.
  - Its groups are C(session_<name>), C(role_<role>), C(agent_<agent>) and C(sessions), the group of all of them;
    characters that a group's name cannot have are C(_) there, as in C(session_train_llm).
  - Its variables are C(backendai_session_id), C(backendai_session_name), C(backendai_role), C(backendai_index),
    C(backendai_rank), C(backendai_agent), C(backendai_container) and C(backendai_address), which is empty in a session
    of one, and those that the connection P(backendai.cluster.container#connection) needs. The agents' own settings, and
    so their secrets, are only referred to.
  - An agent that cannot be asked is left out with a warning.
author:
  - backendai.cluster contributors (!UNKNOWN)
notes:
  - The source is a file C(….yml) or C(….yaml). When the plugin is enabled by its name, other plugins' files are left to
    them, unless they end with C(sessions.yml) or C(sessions.yaml).
  - Commands run as user C(work), not as C(ansible_user) of other hosts; set C(ansible_container_user) for another.
  - The agents are reached as root, or have C(ansible_become) set. What is set in the inventory counts; passwords that
    are asked for on the command line are not known yet when an inventory is read.
  - The variables C(agent_state_path) and C(agent_docker_host) of an agent say where its sessions and its engine are.
  - C(ansible_timeout) of an agent says how many seconds it may take to answer, V(10) unless set.
extends_documentation_fragment:
  - constructed
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [backendai.cluster.sessions]
  agent_group:
    description: The group of the agents.
    type: str
    default: agents
  agents_inventory:
    description:
      - Inventories that hold the agents, as paths relative to this file. They are read before this one, as if they had
        been given with C(-i), so their hosts and groups are in the inventory too.
      - When empty, the agents are those of earlier sources.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
# inventory/sessions.yml, to be given after the agents:
#   ansible -i inventory/agents.yml -i inventory/sessions.yml session_train_llm -m ansible.builtin.raw -a hostname
plugin: backendai.cluster.sessions

---
# By itself: ansible-inventory -i sessions.yml --graph
plugin: backendai.cluster.sessions
agents_inventory: [agents.yml]
# Groups and variables of one's own.
groups:
  workers: backendai_rank > 0
keyed_groups:
  - key: backendai_session_name
    prefix: job
compose:
  ansible_python_interpreter: "'/opt/conda/bin/python'"
"""

import dataclasses
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError, AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.inventory.helpers import get_group_vars, sort_groups
from ansible.inventory.host import Host
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable
from ansible.utils.unsafe_proxy import wrap_var
from ansible.utils.vars import combine_vars
from ansible.vars.hostvars import HostVars
from ansible.vars.plugins import get_vars_from_inventory_sources

from ..plugin_utils import session_hosts
from ..plugin_utils.agent_connection import (
    AgentConnection,
    become_method_of,
    connection_plugin,
    connection_variables,
    timeout_of,
)
from ..plugin_utils.session_hosts import SessionHost

try:
    from ansible.template import trust_as_template
except ImportError:  # ansible-core 2.18 takes every text for a template that is not marked as unsafe.
    trust_as_template = str

# How many agents are asked at once.
PARALLEL = 32

# Variables of every container; of other hosts' they may inherit different ones.
CONTAINER = {
    "ansible_connection": "backendai.cluster.container",
    "ansible_user": "work",
    "ansible_shell_executable": "/opt/backendai/shell/sh",
    "ansible_remote_tmp": "/tmp",
}

_NAMED = re.compile(r"^plugin:\s*[\"']?backendai\.cluster\.sessions\b", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Agent:
    """An agent as it can be asked: ``names`` are those of its variables that say how it is reached."""

    name: str
    connection: AgentConnection
    names: list[str]
    state_path: str
    docker_host: str
    seconds: int


class InventoryModule(BaseInventoryPlugin, Constructable):
    NAME = "backendai.cluster.sessions"

    def verify_file(self, path: str) -> bool:
        """Return whether a file is meant for this plugin."""
        if not super().verify_file(path) or not path.endswith((".yml", ".yaml")):
            return False
        return Path(path).stem.endswith("sessions") or bool(_NAMED.search(Path(path).read_text(errors="replace")))

    def parse(self, inventory: InventoryData, loader: DataLoader, path: str, cache: bool = True) -> None:
        """Add the containers that run now."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        self._adopt(self._agents_inventory(path))
        self._sources = [*inventory.processed_sources, path]
        asked = self._agents()
        with ThreadPoolExecutor(PARALLEL) as pool:
            hosts = [host for found in pool.map(self._ask, asked) for host in found]
        known, warnings = session_hosts.assign_host_names(hosts, inventory.hosts)
        self._warn(warnings)
        inventory.add_group(session_hosts.ALL)
        agents, everywhere = {agent.name: agent for agent in asked}, {**CONTAINER, **self._shield()}
        for name, host in known.items():
            self._add(name, host, agents[host.agent], everywhere)

    def _agents_inventory(self, path: str) -> list[str]:
        """Return the inventories of the agents as absolute paths."""
        here, folder = os.path.realpath(path), os.path.dirname(os.path.abspath(path))
        given = [os.path.join(folder, os.path.expanduser(one)) for one in self.get_option("agents_inventory")]
        for one in given:
            if not os.path.exists(one):
                raise AnsibleParserError(f"agents_inventory: {one} does not exist; paths are relative to {path}.")
            if os.path.commonpath([os.path.realpath(one), here]) == os.path.realpath(one):
                raise AnsibleParserError(
                    f"agents_inventory: {one} contains {path} itself; list only inventories of agents."
                )
        return given

    def _adopt(self, paths: list[str]) -> None:
        """Take over all groups and hosts of other inventories, with their variables."""
        if not paths:
            return
        other = InventoryManager(loader=self.loader, sources=paths)
        for name, group in other.groups.items():
            self.inventory.add_group(name)
            self._set(name, combine_vars(group.get_vars(), self._from_files(paths, [group])))
        for name, host in other.hosts.items():
            self.inventory.add_host(name)
            self._set(name, combine_vars(host.vars, self._from_files(paths, [host])))
        for name, group in other.groups.items():
            for member in [*group.child_groups, *group.hosts]:
                self.inventory.add_child(name, member.name)

    def _set(self, entity: str, variables: Mapping[str, Any]) -> None:
        for name, value in variables.items():
            self.inventory.set_variable(entity, name, value)

    def _from_files(self, sources: list[str], entities: list[Any]) -> dict[str, Any]:
        """Return what lies beside inventories for groups or hosts, as in ``group_vars``."""
        return dict(get_vars_from_inventory_sources(self.loader, sources, entities, "all"))

    def get_vars(self, host: Host, include_hostvars: bool = True) -> dict[str, Any]:
        """Return a host's variables as they would be in a play, not templated; ``hostvars`` asks for them so, too."""
        groups = sort_groups(host.get_groups())
        variables = combine_vars(get_group_vars(groups), self._from_files(self._sources, groups))
        variables = combine_vars(variables, host.get_vars())
        variables = combine_vars(combine_vars(variables, self._from_files(self._sources, [host])), self._vars)
        around = {"hostvars": self._hostvars} if include_hostvars else {}
        return {**variables, **around, "groups": self.inventory.get_groups_dict()}

    def _agents(self) -> list[Agent]:
        """Return the agents that can be asked."""
        name = self.get_option("agent_group")
        group = self.inventory.groups.get(name)
        hosts = group.get_hosts() if group else []
        if not hosts:
            raise AnsibleParserError(
                f"agent_group: the group {name!r} has no hosts; add the inventory of the agents before this one,"
                " or set agents_inventory."
            )
        self._hostvars = HostVars(self.inventory, self, self.loader)
        ready = [self._ready(host) for host in sorted(hosts, key=lambda one: one.name)]
        return [agent for agent in ready if agent]

    def _ready(self, host: Host) -> Agent | None:
        """Return an agent with its settings templated; ``None`` where that fails."""
        own = self.get_vars(host)
        self.templar.available_variables = own
        try:
            chosen = {name: self.templar.template(own[name]) for name in own.keys() & _CHOICES}
            names = sorted(own.keys() & connection_variables(connection_plugin(chosen), become_method_of(chosen)))
            how = {name: self.templar.template(own[name]) for name in names}
            state_path, docker_host = (str(self.templar.template(own.get(name, place))) for name, place in _PLACES)
            return Agent(host.name, AgentConnection(how), names, state_path, docker_host, timeout_of(how))
        except (AnsibleError, TypeError, ValueError) as error:
            self._warn([session_hosts.unavailable_warning(host.name, str(error))])
            return None

    def _ask(self, agent: Agent) -> list[SessionHost]:
        """Return the containers of an agent; none where it cannot be asked. It is run in a thread."""
        try:
            code, output, errors = agent.connection.run(
                session_hosts.list_command(agent.state_path, agent.docker_host, agent.seconds)
            )
        except (AnsibleError, OSError) as error:
            self._warn([session_hosts.unavailable_warning(agent.name, str(error))])
            return []
        if code:
            reason = session_hosts.error_reason(code, errors.decode(errors="replace"), agent.seconds)
            self._warn([session_hosts.unavailable_warning(agent.name, reason)])
            return []
        hosts, warnings = session_hosts.parse_listing(agent.name, output.decode(errors="replace"))
        self._warn(warnings)
        return hosts

    def _add(self, name: str, host: SessionHost, agent: Agent, everywhere: Mapping[str, Any]) -> None:
        """Add a container with the variables that are the same ``everywhere``.

        What an agent says of it is data: nothing in it is ever a template.
        """
        self.inventory.add_host(name)
        for group in (session_hosts.ALL, *host.groups):
            self.inventory.add_group(group)
            self.inventory.add_child(group, name)
        references = session_hosts.variable_references(agent.name, agent.names)
        reached = {key: trust_as_template(value) for key, value in references.items()}
        told = wrap_var({**host.variables, "backendai_docker_host": agent.docker_host})
        self._set(name, {**told, **everywhere, "backendai_agent_connection": reached})
        strict = self.get_option("strict")
        variables = self.inventory.hosts[name].get_vars()
        self._set_composite_vars(self.get_option("compose"), variables, name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, name, strict=strict)

    def _shield(self) -> dict[str, bool]:
        """Return what keeps a container from inheriting how agents become root: its image may have no sudo."""
        everyone = [self.inventory.groups["all"]]
        inherited = combine_vars(get_group_vars(everyone), self._from_files(self._sources, everyone))
        return {"ansible_become": False} if constants.DEFAULT_BECOME or "ansible_become" in inherited else {}

    def _warn(self, warnings: list[str]) -> None:
        for warning in warnings:
            self.display.warning(warning)


# The variables that say which plugins reach an agent.
_CHOICES = {"ansible_connection", "ansible_become_method"}

# Where an agent has its sessions and its engine, unless its variables say otherwise.
_PLACES = (("agent_state_path", session_hosts.STATE_PATH), ("agent_docker_host", session_hosts.DOCKER_HOST))
