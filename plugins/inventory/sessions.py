# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Inventory of the containers of running sessions, read from the agents."""

from __future__ import annotations

DOCUMENTATION = r"""
name: sessions
short_description: Containers of running sessions as hosts
version_added: 0.1.0
description:
  - Adds a host for each container of the running sessions in the queue of this control node, if its agent says that it
    runs, which one command over the agent's own connection asks. Sessions that are still being created, and those of
    other control nodes, are omitted.
  - The name of a host is C(<hostname>.<session name>), such as C(main1.train-llm). If two sessions have the same name,
    the first eight characters of the session's id are appended.
  - Its groups are C(session_<name>), C(role_<role>), C(agent_<agent>) and C(sessions), the group of all of them;
    characters that are invalid in group names are replaced by C(_), as in C(session_train_llm).
  - Its variables are C(backendai_session_id), C(backendai_session_name), C(backendai_role), C(backendai_index),
    C(backendai_rank), C(backendai_agent), C(backendai_container) and C(backendai_address), which is empty in a session
    of one, and those that the connection P(backendai.cluster.container#connection) needs. The connection variables of
    agents, including secrets, are not copied but referenced.
  - An agent that cannot be read is omitted with a warning.
author:
  - backendai.cluster contributors (!UNKNOWN)
notes:
  - The source is a YAML file with the key C(plugin), or with a name that ends with C(sessions.yml) or
    C(sessions.yaml).
  - Commands run as user C(work), not as C(ansible_user) of other hosts; set C(ansible_container_user) for another, as a
    number.
  - The plugin connects to agents as root, or with C(ansible_become). Only settings of the inventory apply; passwords
    that are entered on the command line are not available when an inventory is read.
  - The variables C(agent_docker_host) and C(agent_state_path) of an agent set the address of its engine, and the
    folder of its state.
  - C(ansible_timeout) of an agent is the timeout of the query in seconds, V(10) unless set.
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
      - Inventories of the agents, as paths relative to this file. They are read before this one, as with C(-i), so
        their hosts and groups are in the inventory, too.
      - When empty, the agents are those of earlier sources.
    type: list
    elements: str
    default: []
  queue_path:
    description:
      - The folder of the queue, relative to this file.
      - When empty, it is the variable C(session_queue_path) of the group V(all); without it, the folder that playbooks
        use then, beside the first inventory.
    type: str
    default: ""
"""

EXAMPLES = r"""
# inventory/sessions.yml, after the inventory of the agents:
#   ansible -i inventory/agents.yml -i inventory/sessions.yml session_train_llm -m ansible.builtin.raw -a hostname
plugin: backendai.cluster.sessions

---
# On its own: ansible-inventory -i sessions.yml --graph
plugin: backendai.cluster.sessions
agents_inventory: [agents.yml]
# Additional groups and variables.
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

from ..module_utils._model.plan import SessionPlan
from ..module_utils._model.printable import printable
from ..plugin_utils import session_hosts
from ..plugin_utils._queue.entry import RUNNING
from ..plugin_utils._queue.store import QueueStore, default_path
from ..plugin_utils.agent_connection import AgentConnection, connection_settings, timeout_of
from ..plugin_utils.session_hosts import SessionHost

try:
    from ansible.template import trust_as_template
except ImportError:  # ansible-core 2.18 templates every string that is not marked as unsafe.
    trust_as_template = str

# The maximum number of agents that are read concurrently.
MAX_PARALLEL_QUERIES = 32

# Variables of every container, which override those that it would inherit from groups.
CONTAINER_VARIABLES = {
    "ansible_connection": "backendai.cluster.container",
    "ansible_user": "work",
    "ansible_shell_executable": "/opt/backendai/shell/sh",
    "ansible_remote_tmp": "/tmp",
}

_NAMED = re.compile(r"^plugin:\s*[\"']?backendai\.cluster\.sessions\b", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Agent:
    """An agent to query; ``names`` are those of its connection variables."""

    name: str
    connection: AgentConnection
    names: list[str]
    docker_host: str
    state_path: str
    seconds: int


class InventoryModule(BaseInventoryPlugin, Constructable):
    NAME = "backendai.cluster.sessions"

    def verify_file(self, path: str) -> bool:
        """Return whether a file is a source of this plugin."""
        if not super().verify_file(path) or not path.endswith((".yml", ".yaml")):
            return False
        return Path(path).stem.endswith("sessions") or bool(_NAMED.search(Path(path).read_text(errors="replace")))

    def parse(self, inventory: InventoryData, loader: DataLoader, path: str, cache: bool = True) -> None:
        """Add the running containers."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        self._merge_inventories(self._agents_inventory(path))
        self._sources = [*inventory.processed_sources, path]
        agents, plans = self._agents(), self._plans(path)
        with ThreadPoolExecutor(MAX_PARALLEL_QUERIES) as pool:
            listings = zip(agents, pool.map(self._query, agents), strict=True)
            hosts = [host for agent, output in listings for host in session_hosts.find_hosts(agent.name, output, plans)]
        named_hosts, warnings = session_hosts.assign_host_names(hosts, inventory.hosts)
        self._warn(warnings)
        inventory.add_group(session_hosts.ALL)
        agents_by_name = {agent.name: agent for agent in agents}
        common_variables = {**CONTAINER_VARIABLES, **self._disable_become()}
        for name, host in named_hosts.items():
            self._add(name, host, agents_by_name[host.agent], common_variables)

    def _agents_inventory(self, path: str) -> list[str]:
        """Return the inventories of the agents as absolute paths."""
        own_path, folder = os.path.realpath(path), os.path.dirname(os.path.abspath(path))
        inventories = [os.path.join(folder, os.path.expanduser(name)) for name in self.get_option("agents_inventory")]
        for inventory in inventories:
            if not os.path.exists(inventory):
                raise AnsibleParserError(f"agents_inventory: {inventory} does not exist; paths are relative to {path}.")
            if os.path.commonpath([os.path.realpath(inventory), own_path]) == os.path.realpath(inventory):
                raise AnsibleParserError(
                    f"agents_inventory: {inventory} contains {path} itself; list only inventories of agents."
                )
        return inventories

    def _plans(self, path: str) -> list[SessionPlan]:
        """Return the plans of the sessions that have been started from the queue."""
        configured = self.get_option("queue_path")
        variable = self._variables_of_all().get("session_queue_path")
        if configured:
            folder = os.path.join(os.path.dirname(os.path.abspath(path)), os.path.expanduser(configured))
        elif variable:
            self.templar.available_variables = self._variables_of_all()
            folder = os.path.expanduser(str(self.templar.template(variable)))
        else:
            others = (source for source in self._sources if source != path)
            folder = default_path([*self._agents_inventory(path), *others, path])
        return [entry.plan for entry in QueueStore(folder).entries() if entry.state == RUNNING and entry.plan]

    def _merge_inventories(self, paths: list[str]) -> None:
        """Add all groups and hosts of other inventories, with their variables."""
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
        """Return the variables of files beside inventories, as in ``group_vars``."""
        return dict(get_vars_from_inventory_sources(self.loader, sources, entities, "all"))

    def get_vars(self, host: Host, include_hostvars: bool = True) -> dict[str, Any]:
        """Return a host's variables as in a play, not templated; ``HostVars`` calls this, too."""
        groups = sort_groups(host.get_groups())
        variables = combine_vars(get_group_vars(groups), self._from_files(self._sources, groups))
        variables = combine_vars(variables, host.get_vars())
        variables = combine_vars(combine_vars(variables, self._from_files(self._sources, [host])), self._vars)
        around = {"hostvars": self._hostvars} if include_hostvars else {}
        return {**variables, **around, "groups": self.inventory.get_groups_dict()}

    def _agents(self) -> list[Agent]:
        """Return the agents to query."""
        name = self.get_option("agent_group")
        group = self.inventory.groups.get(name)
        hosts = group.get_hosts() if group else []
        if not hosts:
            raise AnsibleParserError(
                f"agent_group: the group {name!r} has no hosts; add the inventory of the agents before this one,"
                " or set agents_inventory."
            )
        self._hostvars = HostVars(self.inventory, self, self.loader)
        ready = [self._prepare_agent(host) for host in sorted(hosts, key=lambda host: host.name)]
        return [agent for agent in ready if agent]

    def _prepare_agent(self, host: Host) -> Agent | None:
        """Return an agent with its settings templated; ``None`` if that fails."""
        variables = self.get_vars(host)
        self.templar.available_variables = variables
        try:
            settings = connection_settings(variables, self.templar.template)
            docker_host = str(self.templar.template(variables.get("agent_docker_host", session_hosts.DOCKER_HOST)))
            state = str(self.templar.template(variables.get("agent_state_path", session_hosts.STATE_PATH)))
            return Agent(host.name, AgentConnection(settings), list(settings), docker_host, state, timeout_of(settings))
        except (AnsibleError, TypeError, ValueError) as error:
            self._warn([session_hosts.unavailable_warning(host.name, str(error))])
            return None

    def _query(self, agent: Agent) -> str:
        """Return the names of the running containers of an agent; none if it cannot be read. Runs in a thread."""
        try:
            command = session_hosts.list_command(agent.docker_host, agent.state_path, agent.seconds)
            code, output, errors = agent.connection.run(command)
        except (AnsibleError, OSError) as error:
            self._warn([session_hosts.unavailable_warning(agent.name, str(error))])
            return ""
        if code:
            reason = session_hosts.error_reason(code, errors.decode(errors="replace"), agent.seconds)
            self._warn([session_hosts.unavailable_warning(agent.name, reason)])
            return ""
        return output.decode(errors="replace")

    def _add(self, name: str, host: SessionHost, agent: Agent, common_variables: Mapping[str, Any]) -> None:
        """Add a container with its own variables and the common ones.

        Values from the agent are marked as unsafe, so that they are never templated.
        """
        self.inventory.add_host(name)
        for group in (session_hosts.ALL, *host.groups):
            self.inventory.add_group(group)
            self.inventory.add_child(group, name)
        references = session_hosts.variable_references(agent.name, agent.names)
        reached = {key: trust_as_template(value) for key, value in references.items()}
        host_variables = wrap_var({**host.variables, "backendai_docker_host": agent.docker_host})
        self._set(name, {**host_variables, **common_variables, "backendai_agent_connection": reached})
        strict = self.get_option("strict")
        variables = self.inventory.hosts[name].get_vars()
        self._set_composite_vars(self.get_option("compose"), variables, name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, name, strict=strict)

    def _disable_become(self) -> dict[str, bool]:
        """Return the variable that stops containers from inheriting ``become``: their image may have no sudo."""
        inherited = constants.DEFAULT_BECOME or "ansible_become" in self._variables_of_all()
        return {"ansible_become": False} if inherited else {}

    def _variables_of_all(self) -> dict[str, Any]:
        everyone = [self.inventory.groups["all"]]
        return dict(combine_vars(get_group_vars(everyone), self._from_files(self._sources, everyone)))

    def _warn(self, warnings: list[str]) -> None:
        for warning in warnings:
            self.display.warning(printable(warning))
