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
  - Adds a host for each container of the running sessions in the queue of this control node, by its record. No agent is
    asked, so a container that has stopped, or whose agent is down, is a host that cannot be reached. Sessions that are
    still being created, and those of other control nodes, are omitted.
  - The name of a host is C(<hostname>.<session name>), such as C(main1.train-llm). If two sessions have the same name,
    the first eight characters of the session's id are appended.
  - Its groups are C(session_<name>), C(role_<role>), C(agent_<agent>) and C(sessions), the group of all of them;
    characters that are invalid in group names are replaced by C(_), as in C(session_train_llm).
  - Its variables are C(backendai_session_id), C(backendai_session_name), C(backendai_role), C(backendai_index),
    C(backendai_rank), C(backendai_agent), C(backendai_container) and C(backendai_address), which is empty in a session
    of one, and those that the connection P(backendai.cluster.container#connection) needs. The connection variables of
    agents, including secrets, are not copied but referenced.
  - Containers on agents that are not in the group of the agents are omitted with a warning.
author:
  - backendai.cluster contributors (!UNKNOWN)
notes:
  - The source is a YAML file with the key C(plugin), or with a name that ends with C(sessions.yml) or
    C(sessions.yaml).
  - Commands run as user C(work), not as C(ansible_user) of other hosts; set C(ansible_container_user) for another, as a
    number.
  - The variable C(agent_docker_host) of an agent sets the address of its engine.
  - C(backendai_docker_host) and C(backendai_agent_connection) are templates, which are resolved when a container is
    reached. So O(compose), O(groups) and O(keyed_groups) cannot use their values; use C(backendai_agent).
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
      - When empty, it is the variable C(session_queue_path) of the group V(all), where C(inventory_dir) and
        C(inventory_file) are those of the first inventory; without it, the folder that playbooks use then, beside the
        first inventory of the command line, or the one beside the first of O(agents_inventory) if only that exists.
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

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible import constants, context
from ansible.errors import AnsibleError, AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.inventory.helpers import get_group_vars
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable
from ansible.utils.unsafe_proxy import wrap_var
from ansible.utils.vars import combine_vars
from ansible.vars.plugins import get_vars_from_inventory_sources

from ..module_utils._model.plan import SessionPlan
from ..module_utils._model.printable import printable
from ..plugin_utils import session_hosts
from ..plugin_utils._queue.store import QueueStore, default_path
from ..plugin_utils.session_hosts import SessionHost

try:
    from ansible.template import trust_as_template
except ImportError:  # ansible-core 2.18 templates every string that is not marked as unsafe.
    trust_as_template = str

# Variables of every container, which override those that it would inherit from groups.
CONTAINER_VARIABLES = {
    "ansible_connection": "backendai.cluster.container",
    "ansible_user": "work",
    "ansible_shell_executable": "/opt/backendai/shell/sh",
    "ansible_remote_tmp": "/tmp",
}

_NAMED = re.compile(r"^plugin:\s*[\"']?backendai\.cluster\.sessions\b", re.MULTILINE)


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
        agents = self._agents()
        hosts = session_hosts.find_hosts(self._plans(path))
        unknown = sorted({host.agent for host in hosts}.difference(agents))
        group = self.get_option("agent_group")
        self._warn([f"{agent} is left out: the group {group} has no such host." for agent in unknown])
        known = [host for host in hosts if host.agent in agents]
        named_hosts, warnings = session_hosts.assign_host_names(known, inventory.hosts)
        self._warn(warnings)
        inventory.add_group(session_hosts.ALL)
        common_variables = {**CONTAINER_VARIABLES, **self._disable_become()}
        for name, host in named_hosts.items():
            self._add(name, host, common_variables)

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
        queue = QueueStore(self._queue_path(path))
        if not os.path.isdir(queue.path):
            # The queue of another inventory may be meant.
            problem = f"no session is known, since {queue.path} does not exist; name the folder that playbooks use"
            self._warn([f"queue_path: {problem}."])
        return [entry.plan for entry in queue.running() if entry.plan]

    def _queue_path(self, path: str) -> str:
        """Return the folder of the queue."""
        configured = self.get_option("queue_path")
        if configured:
            return os.path.join(os.path.dirname(os.path.abspath(path)), os.path.expanduser(configured))
        # Those of the command line are what playbooks go by: of a folder, other sources are its files.
        given = context.CLIARGS.get("inventory") or self._sources
        variables = self._variables_of_all()
        variable = variables.get("session_queue_path")
        if not variable:
            places = [default_path(sources) for sources in (given, self._agents_inventory(path)) if sources]
            return next(filter(os.path.isdir, places), places[0])
        first = os.path.abspath(next(filter(os.path.exists, given), path))
        folder = first if os.path.isdir(first) else os.path.dirname(first)
        self.templar.available_variables = {"inventory_file": first, "inventory_dir": folder, **variables}
        try:
            return os.path.expanduser(str(self.templar.template(variable)))
        except AnsibleError as error:
            raise AnsibleParserError(f"session_queue_path: {error}") from None

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

    def _agents(self) -> set[str]:
        """Return the names of the agents."""
        name = self.get_option("agent_group")
        group = self.inventory.groups.get(name)
        hosts = group.get_hosts() if group else []
        if not hosts:
            raise AnsibleParserError(
                f"agent_group: the group {name!r} has no hosts; add the inventory of the agents before this one,"
                " or set agents_inventory."
            )
        return {host.name for host in hosts}

    def _add(self, name: str, host: SessionHost, common_variables: Mapping[str, Any]) -> None:
        """Add a container with its own variables and the common ones.

        Values of the record are marked as unsafe, so that they are never templated.
        """
        self.inventory.add_host(name)
        for group in (session_hosts.ALL, *host.groups):
            self.inventory.add_group(group)
            self.inventory.add_child(group, name)
        references = session_hosts.variable_references(host.agent)
        reached = {key: trust_as_template(value) for key, value in references.items()}
        self._set(name, {**wrap_var(host.variables), **common_variables, **reached})
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
