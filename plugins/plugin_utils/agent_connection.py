# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A connection to an agent outside of a task on that agent, by its connection plugin and variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.playbook.play_context import PlayContext
from ansible.plugins.become import BecomeBase
from ansible.plugins.loader import become_loader, connection_loader, get_shell_plugin

# The variables that select the plugins of an agent's connection.
_PLUGIN_VARIABLES = {"ansible_connection", "ansible_become_method"}

_BECAME = re.compile(rb"\A(\r?\n)?BECOME-SUCCESS-[a-z]+\r?\n")


def connection_plugin(variables: Mapping[str, Any]) -> str:
    """Return the name of an agent's connection plugin."""
    return str(variables.get("ansible_connection") or constants.DEFAULT_TRANSPORT)


def become_method_of(variables: Mapping[str, Any]) -> str:
    """Return the name of an agent's become plugin, whether or not it is used."""
    return str(variables.get("ansible_become_method") or constants.DEFAULT_BECOME_METHOD)


def connection_variables(transport: str, become_method: str) -> set[str]:
    """Return the names of all variables that configure a connection through these plugins."""
    plugins = {"connection": _plugin_class("connection", transport), "become": _plugin_class("become", become_method)}
    names = {"ansible_connection", "ansible_become", "ansible_become_method", "ansible_timeout"}
    return names.union(*(constants.config.get_plugin_vars(kind, plugin._load_name) for kind, plugin in plugins.items()))


def connection_settings(variables: Mapping[str, Any], template: Callable[[Any], Any]) -> dict[str, Any]:
    """Return those of an agent's variables that configure its connection, templated."""
    chosen = {name: template(variables[name]) for name in variables.keys() & _PLUGIN_VARIABLES}
    names = variables.keys() & connection_variables(connection_plugin(chosen), become_method_of(chosen))
    return {name: template(variables[name]) for name in sorted(names)}


def timeout_of(variables: Mapping[str, Any]) -> int:
    """Return the timeout of an agent's connection in seconds."""
    return int(variables.get("ansible_ssh_timeout") or variables.get("ansible_timeout") or constants.DEFAULT_TIMEOUT)


class AgentConnection:
    """A connection to an agent; ``variables`` are its :func:`connection_variables`, templated.

    Commands run as root if the connection logs in as root or ``ansible_become`` is set. All methods may raise
    :class:`AnsibleError`, and :class:`AnsibleConnectionFailure` if the agent is unreachable.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        transport = connection_plugin(variables)
        _plugin_class("connection", transport)
        # A terminal would mix output and errors, and change line endings. Without pipelining, a local connection that
        # sends a password has no standard input left for data.
        forced = {
            "ansible_pipelining": True,
            "ansible_ssh_pipelining": True,
            "ansible_ssh_use_tty": False,
            "ansible_ssh_timeout": timeout_of(variables),
        }
        self._shell = get_shell_plugin(shell_type="sh", executable="/bin/sh")
        self._plugin = connection_loader.get(transport, PlayContext(), shell=self._shell)
        self._plugin.set_options(var_options={**variables, **forced})
        self._become = self._become_plugin(variables)
        self._plugin.set_become_plugin(self._become)

    def run(self, command: str, data: bytes | None = None) -> tuple[int, bytes, bytes]:
        """Run a shell command, with ``data`` as its standard input if given; return exit code, stdout and stderr."""
        if self._become is not None:
            command = self._become.build_become_command(command, self._shell)
        code, output, errors = self._plugin.exec_command(command, in_data=data, sudoable=self._become is not None)
        return code, _BECAME.sub(b"", output), errors

    def close(self) -> None:
        """Close the connection; the next command reopens it."""
        self._plugin.close()

    def _become_plugin(self, variables: Mapping[str, Any]) -> BecomeBase | None:
        if not boolean(variables.get("ansible_become", constants.DEFAULT_BECOME)):
            return None
        method = become_method_of(variables)
        _plugin_class("become", method)
        plugin = become_loader.get(method)
        plugin.set_options(var_options=dict(variables))
        return (
            None
            if plugin.get_option("become_user") == self._user() and not constants.BECOME_ALLOW_SAME_USER
            else plugin
        )

    def _user(self) -> str | None:
        """Return the login user, if it is known."""
        try:
            return self._plugin.get_option("remote_user") or self._plugin.default_user
        except KeyError:
            return self._plugin.default_user


def _plugin_class(kind: str, name: str) -> Any:
    loader = connection_loader if kind == "connection" else become_loader
    plugin = loader.get(name, class_only=True)
    if plugin is None:
        option = "ansible_connection" if kind == "connection" else "ansible_become_method"
        raise AnsibleError(f"{option}: there is no {kind} plugin {name!r}")
    return plugin
