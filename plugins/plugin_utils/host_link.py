# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Links to hosts outside of tasks on them. All that depends on the inside of ansible-core is here.

A link follows the variables of its host, the command line and ``ansible.cfg``, as a task on that host would; never the
keywords or ``vars`` of the task that makes it, which is one on the control node. It is made in the main thread. Then
one other thread may use it, which only moves bytes: templates and the loader of plugins do not work in threads.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
import secrets
import shlex
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ansible import constants, context
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.become import BecomeBase
from ansible.plugins.connection import ConnectionBase
from ansible.plugins.loader import become_loader, connection_loader, get_shell_plugin, lookup_loader
from ansible.template import Templar
from ansible.utils.display import Display
from ansible.utils.fqcn import add_internal_fqcns
from ansible.utils.unsafe_proxy import wrap_var

Template = Callable[[Any], Any]
"""Returns a value with its templates rendered."""

DISCOVER = ("auto", "auto_silent", "auto_legacy", "auto_legacy_silent", "")
"""The values of ``ansible_python_interpreter`` that name no Python."""

DISCOVERED = "discovered_interpreter_python"
"""The fact with the Python that a module on the host has found."""

USUAL_PYTHON = "/usr/bin/python3"
"""The Python of a host where none of Ansible's list is found."""

RUNS_ONCE = frozenset(add_internal_fqcns(["linear", "debug"]))
"""The strategies of plays in which ``run_once`` has an effect."""

# The variables that select the plugins of a host's connection.
_PLUGIN_VARIABLES = {"ansible_connection", "ansible_become_method"}

_BECAME = re.compile(rb"\A(\r?\n)?BECOME-SUCCESS-[a-z]+\r?\n")


class Output(NamedTuple):
    """What a command on a host has returned."""

    code: int
    stdout: bytes
    stderr: bytes


class Interpreter(NamedTuple):
    """The Python of a host: its ``name`` in messages, and the shell command that starts it, without arguments."""

    name: str
    command: str


class Passwords(NamedTuple):
    """The passwords that the user has typed for ``-k`` and ``-K``; empty without them."""

    connection: str = ""
    become: str = ""


NOTHING_TYPED = Passwords()


def forks() -> int:
    """Return how many hosts Ansible works on at the same time: from the command line, or else the configuration."""
    return int(context.CLIARGS.get("forks") or constants.DEFAULT_FORKS)


def strategy_of(task: Task) -> str:
    """Return the name of the strategy by which the play of a task runs: its own, or else that of the configuration."""
    return str(task.get_play().strategy)


def show_lines_at_once() -> None:
    """Let the run write each line that a task displays, also to a file or a pipe: Ansible leaves that to the end.

    To be called while an action is imported: the process of the run does so before it starts the one of the task.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


@contextlib.contextmanager
def displayed_while(heard: Callable[[], bool]) -> Iterator[None]:
    """Display nothing in the block, whoever wants to, once what is displayed is not ``heard`` any more.

    The process of a task displays by a pipe to that of the run. Once nobody reads that, it fills up, and the next line
    would block for ever: the process holds the other end of it, too.
    """
    display = Display()
    queue = display._final_q
    if queue is None:
        # This is the process of the run.
        yield
        return
    display.set_queue(_HeardQueue(queue, heard))
    try:
        yield
    finally:
        if heard():
            display.set_queue(queue)


class _HeardQueue:
    """What is left of the queue of a task's process for :class:`Display`."""

    def __init__(self, queue: Any, heard: Callable[[], bool]) -> None:
        self._queue, self._heard = queue, heard

    def send_display(self, method: str, *args: Any, **kwargs: Any) -> None:
        if self._heard():
            self._queue.send_display(method, *args, **kwargs)

    def send_prompt(self, **prompt: Any) -> None:
        if not self._heard():
            raise AnsibleError("nobody can be asked: the run is over")
        self._queue.send_prompt(**prompt)


def connection_settings(variables: Mapping[str, Any], template: Template) -> dict[str, Any]:
    """Return those of a host's variables that configure its connection, templated."""
    chosen = {name: template(variables[name]) for name in variables.keys() & _PLUGIN_VARIABLES}
    names = variables.keys() & connection_variables(_transport(chosen), _become_method(chosen))
    return {name: template(variables[name]) for name in sorted(names)}


@functools.cache
def connection_variables(transport: str, become_method: str) -> frozenset[str]:
    """Return the names of all variables that configure a connection through these plugins."""
    plugins = {"connection": _plugin_class("connection", transport), "become": _plugin_class("become", become_method)}
    names = {"ansible_connection", "ansible_become", "ansible_become_method", "ansible_timeout"}
    names |= {"ansible_shell_executable", "ansible_remote_tmp"}
    for kind, plugin in plugins.items():
        names.update(constants.config.get_plugin_vars(kind, plugin._load_name))
    return frozenset(names)


def interpreter_of(variables: Mapping[str, Any], template: Template) -> Interpreter:
    """Return the Python of a host: the variable ``agent_python``, or else the one that modules use there.

    Where that would be discovered, the shell of the host takes the first one of Ansible's list.
    """
    config = constants.config
    chosen = variables.get("agent_python") or config.get_config_value("INTERPRETER_PYTHON", variables=dict(variables))
    python = str(template(chosen) or "")
    if python in DISCOVER:
        facts = variables.get("ansible_facts")
        python = str(facts.get(DISCOVERED) or "") if isinstance(facts, Mapping) else ""
    if python:
        return Interpreter(python, python)
    names = template(config.get_config_value("INTERPRETER_PYTHON_FALLBACK", variables=dict(variables)))
    words = " ".join(shlex.quote(str(name)) for name in names)
    first = f'for p in {words}; do command -v "$p" && exit; done; echo {USUAL_PYTHON}'
    return Interpreter(USUAL_PYTHON, f"$({first})")


def leaves_input(become: BecomeBase | None) -> bool:
    """Return whether a become plugin leaves a command its standard input; ``su`` does not."""
    if become is None:
        return True
    # Before ansible-core 2.19 plugins do not say.
    return bool(getattr(become, "pipelining", become.name != "su"))


class HostLink:
    """A connection to a host; ``settings`` are its :func:`connection_settings`.

    Commands run as root if the connection logs in as root or become is on. A ``renewed`` link follows one whose command
    has been given up: it shares nothing with it. The methods may raise :class:`AnsibleError`, and
    :class:`AnsibleConnectionFailure` if the host is unreachable. One thread at a time may use it.
    """

    def __init__(
        self, settings: Mapping[str, Any], passwords: Passwords = NOTHING_TYPED, *, renewed: bool = False
    ) -> None:
        variables, transport = dict(settings), _transport(settings)
        _plugin_class("connection", transport)
        self._context = _play_context(variables, passwords)
        executable = str(variables.get("ansible_shell_executable") or constants.DEFAULT_EXECUTABLE)
        self._shell = get_shell_plugin(shell_type="sh", executable=executable)
        self._shell.set_options(var_options=variables)
        keywords = _keywords(self._context)
        self._plugin: ConnectionBase = connection_loader.get(transport, self._context, shell=self._shell)
        self._plugin.set_options(task_keys=keywords, var_options=variables)
        self._become = self._become_plugin(variables, keywords)
        self._plugin.set_become_plugin(self._become)
        self._context.set_become_plugin(self._become)
        self._context.set_attributes_from_plugin(self._plugin)
        self._input = self._takes_input()
        if self._input:
            # A local connection without it has no standard input left after it has sent a password.
            with contextlib.suppress(KeyError, AnsibleError):
                self._plugin.set_option("pipelining", True)
        self._stale = renewed

    def run(self, command: str, data: bytes | None = None) -> Output:
        """Run a shell command, with ``data`` as its standard input if given."""
        if self._stale:
            self._leave_shared_connection()
        if data is None or self._input:
            return self._execute(command, data)
        return self._run_with_file(command, data)

    def close(self) -> None:
        """Close the connection; the next command reopens it."""
        self._plugin.close()

    def _execute(self, command: str, data: bytes | None = None, *, become: bool = True) -> Output:
        plugin = self._become if become else None
        if plugin is not None:
            command = plugin.build_become_command(command, self._shell)
        if self._plugin.allow_executable:
            # The user may have a login shell of another syntax.
            command = f"{self._shell.executable} -c {shlex.quote(command)}"
        try:
            code, output, errors = self._plugin.exec_command(command, in_data=data, sudoable=plugin is not None)
        except AnsibleConnectionFailure as error:
            if "censored" not in str(error):
                raise
            self._raise_uncensored()
            raise
        return Output(code, _BECAME.sub(b"", output), errors)

    def _raise_uncensored(self) -> None:
        """Repeat the failure of the connection with a command that has nothing to hide: its error names the reason."""
        self._context.no_log = False
        try:
            self._plugin.exec_command(":", sudoable=False)
        finally:
            self._context.no_log = True

    def _run_with_file(self, command: str, data: bytes) -> Output:
        """Run a command with its input from a file of the login user: ``su`` and terminals leave no standard input."""
        name = f"backendai-{secrets.token_hex(8)}"
        made = self._execute(self._shell.mkdtemp(basefile=name, system=False, tmpdir=self._remote_tmp()), become=False)
        _marker, found, folder = made.stdout.decode(errors="replace").rpartition(f"{name}=")
        folder = folder.strip()
        if made.code or not found or not folder:
            why = " ".join(made.stderr.decode(errors="replace").split())
            raise AnsibleError(f"no temporary folder can be made below ansible_remote_tmp on this host: {why}")
        path = self._shell.join_path(folder, "request")
        try:
            with tempfile.NamedTemporaryFile(prefix="backendai-") as local:
                local.write(data)
                local.flush()
                self._plugin.put_file(local.name, path)
            return self._execute(f"({command}) < {shlex.quote(path)}")
        finally:
            self._execute(f"rm -rf {shlex.quote(folder)}", become=False)

    def _remote_tmp(self) -> str:
        return str(self._shell.get_option("remote_tmp"))

    def _leave_shared_connection(self) -> None:
        """Leave the connection that is shared with other commands: the one that was given up may hang in it."""
        self._stale = False
        if type(self._plugin).reset is not ConnectionBase.reset:
            self._plugin.reset()

    def _takes_input(self) -> bool:
        """Return whether commands have a standard input; not where pipelining was switched off, or with ``su``."""
        if not self._plugin.has_pipelining or not leaves_input(self._become):
            return False
        try:
            wanted, origin = self._plugin.get_option_and_origin("pipelining")
        except KeyError:
            return True
        return bool(wanted) or origin == "default"

    def _become_plugin(self, variables: dict[str, Any], keywords: Mapping[str, Any]) -> BecomeBase | None:
        if not boolean(variables.get("ansible_become", keywords.get("become", constants.DEFAULT_BECOME))):
            return None
        method = _become_method(variables)
        _plugin_class("become", method)
        plugin: BecomeBase = become_loader.get(method)
        plugin.set_options(task_keys=keywords, var_options=variables)
        same = plugin.get_option("become_user") == self._user() and not constants.BECOME_ALLOW_SAME_USER
        return None if same else plugin

    def _user(self) -> str | None:
        """Return the login user, if it is known."""
        try:
            return self._plugin.get_option("remote_user") or self._plugin.default_user
        except KeyError:
            return self._plugin.default_user


class InventoryHosts:
    """The hosts of the inventory of a task, with their own variables."""

    def __init__(self, task_vars: Mapping[str, Any], loader: DataLoader) -> None:
        self._hostvars, self._loader = task_vars["hostvars"], loader
        self._groups: Mapping[str, Sequence[str]] = task_vars.get("groups") or {}

    def __contains__(self, name: str) -> bool:
        return name in self._hostvars

    def matching(self, pattern: str | Sequence[str]) -> list[str]:
        """Return the hosts that a pattern matches, as in ``hosts`` of a play, whatever ``--limit`` says."""
        return [host.name for host in self._manager().get_hosts(pattern=pattern)]

    def within_limit(self, names: Collection[str]) -> list[str]:
        """Return those of the hosts that ``--limit`` does not hide."""
        limit = context.CLIARGS.get("subset")
        if not limit:
            return list(names)
        manager = self._manager()
        manager.subset(limit)
        shown = {host.name for host in manager.get_hosts()}
        return [name for name in names if name in shown]

    def variables(self, name: str) -> tuple[Mapping[str, Any], Template]:
        """Return the variables of a host as they are, and what renders templates in them."""
        variables = {**self._hostvars.raw_get(name), "hostvars": self._hostvars, "groups": self._groups}
        return variables, Templar(loader=self._loader, variables=variables).template

    def render(self, name: str, path: str, known: Mapping[str, Any], folders: Sequence[str] = ()) -> str:
        """Return the template in a file, rendered with the variables of a host and those that are ``known``.

        It may include files beside it, and of other ``folders``. What is known is text of users, which is no template
        itself: ansible-core 2.18 has to be told. Raises :class:`AnsibleError`.
        """
        variables = {**self.variables(name)[0], "ansible_search_path": list(folders)}
        templar = Templar(loader=self._loader, variables=variables)
        lookup = lookup_loader.get("ansible.builtin.template", loader=self._loader, templar=templar)
        (text,) = lookup.run([path], variables=variables, template_vars=wrap_var(dict(known)))
        return str(text)

    def _manager(self) -> InventoryManager:
        manager = InventoryManager(loader=self._loader, parse=False)
        for group, hosts in self._groups.items():
            manager.add_group(group)
            for host in hosts:
                manager.add_host(host, group=group)
        return manager


def typed_passwords(play_context: PlayContext, task_vars: Mapping[str, Any]) -> Passwords:
    """Return the passwords that the user has typed, from the task that runs on the control node.

    The variables of the control node replace them there, and are nobody else's.
    """

    def typed(field: str, attribute: str, options: Sequence[str]) -> str:
        own = any(name in task_vars for name in constants.MAGIC_VARIABLE_MAPPING[field])
        asked = any(context.CLIARGS.get(option) for option in options)
        return str(getattr(play_context, attribute) or "") if asked and not own else ""

    return Passwords(
        typed("password", "password", ("ask_pass", "connection_password_file")),
        typed("become_pass", "become_pass", ("become_ask_pass", "become_password_file")),
    )


def _transport(variables: Mapping[str, Any]) -> str:
    chosen = variables.get("ansible_connection") or context.CLIARGS.get("connection")
    return str(chosen or constants.DEFAULT_TRANSPORT)


def _become_method(variables: Mapping[str, Any]) -> str:
    """Return the name of a host's become plugin, whether or not it is used."""
    chosen = variables.get("ansible_become_method") or context.CLIARGS.get("become_method")
    return str(chosen or constants.DEFAULT_BECOME_METHOD)


def _play_context(variables: Mapping[str, Any], passwords: Passwords) -> PlayContext:
    made = PlayContext(passwords={"conn_pass": passwords.connection, "become_pass": passwords.become})
    if "ansible_timeout" in variables:
        made.timeout = int(variables["ansible_timeout"])
    made.remote_addr = variables.get("ansible_host") or variables.get("inventory_hostname")
    made.remote_user = variables.get("ansible_user") or context.CLIARGS.get("remote_user")
    # With -vvv, plugins show what hosts return unless it is secret.
    made.no_log = True
    return made


def _keywords(made: PlayContext) -> dict[str, Any]:
    """Return what Ansible would hand to the plugins as keywords of a task that has none: the command line's."""
    named = {name: context.CLIARGS.get(name) for name in ("remote_user", "become", "become_method", "become_user")}
    typed = {"password": made.password, "become_pass": made.become_pass}
    known = {name: value for name, value in {**named, **typed}.items() if value}
    return {"timeout": made.timeout, **known}


@functools.cache
def _plugin_class(kind: str, name: str) -> Any:
    loader = connection_loader if kind == "connection" else become_loader
    plugin = loader.get(name, class_only=True)
    if plugin is None:
        option = "ansible_connection" if kind == "connection" else "ansible_become_method"
        raise AnsibleError(f"{option}: there is no {kind} plugin {name!r}")
    return plugin
