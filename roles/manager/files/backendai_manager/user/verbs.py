# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the user's part does for each verb."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import getpass
import json
import os
import socket
import stat
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ..errors import CancelledError, CommandError, RefusedError
from ..options import TEMPLATE, build_schema, load_options
from ..paths import Paths
from ..protocol import MAX_SECONDS, Result
from . import ssh_config, tables
from .arguments import session_options
from .keys import KEY_NAME, ensure_key, public_keys
from .progress import Progress
from .service import Service
from .spec_file import merge, read_spec
from .ssh_files import SECONDS, SshFiles, has_host_key
from .text import age, duration, printable, wrapped

WATCH_SECONDS = 5.0
ENDED = ("TERMINATED", "CANCELLED", "ERROR")


@dataclasses.dataclass(frozen=True)
class Invocation:
    """One call of the command: its options, the words behind ``--``, and what it works with."""

    options: argparse.Namespace
    command: Sequence[str]
    paths: Paths
    ssh: SshFiles
    service: Service

    def ask(self, verb: str, **fields: Any) -> Result:
        """Return the result of the manager's part. Raises :class:`CommandError` unless it is done, or still waits.

        Sessions that have ended by what it says are none of ssh any more.
        """
        output = tables.make_console()
        # Neither those that another command creates while this one lists, nor those of another manager.
        known: set[str] = set()
        with contextlib.suppress(CommandError):
            known = {access.id for access in self.ssh.sessions() if access.manager == socket.gethostname()}
        with Progress(tables.make_console(stderr=True), output, verbose=self.options.verbose) as progress:
            result = self.service.ask(verb, fields, progress.take, progress.stopping)
        if result.status == "refused":
            raise RefusedError(result.message)
        if result.status not in ("done", "pending") and not result.data:
            raise CommandError(result.message or "it has failed.")
        gone = known & _ended(result.data, known if verb == "list" and not fields.get("cached") else ())
        if gone:
            self.keep(lambda: self.ssh.change(gone=gone))
        return result

    def keep(self, step: Callable[[], str | None]) -> None:
        """Take a step that keeps the files of ssh true, and say what it returns. No command fails because of it."""
        try:
            said = step()
        except (OSError, CommandError) as error:
            said = f"ssh may not know your sessions by their names: {error}"
        sys.stderr.write(f"{printable(said)}\n" if said else "")

    def say(self, *lines: str) -> None:
        """Print lines; those that are too long for the terminal break between words."""
        width = tables.make_console().width
        for line in lines:
            sys.stdout.writelines(f"{shown}\n" for shown in wrapped(printable(line), width))

    def print_json(self, data: Any) -> None:
        """Print data for programs."""
        sys.stdout.write(json.dumps(data, indent=2) + "\n")


def _ended(data: Mapping[str, Any], listed: Collection[str]) -> set[str]:
    """Return the ids of sessions that have ended by their records, and of those ``listed`` that have none."""
    records = {str(each.get("id")): each for each in (*data.get("sessions", ()), data.get("record") or {})}
    return {*listed} - {*records} | {found for found, record in records.items() if record.get("status") in ENDED}


def _offer_include(invocation: Invocation, *, later: bool = False) -> None:
    try:
        invocation.keep(lambda: invocation.ssh.include(_confirm if sys.stdin.isatty() else None, later=later))
    except KeyboardInterrupt:
        sys.stderr.write("\n")  # Not now. What the command has done is done.


def _confirm(question: str) -> bool:
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def create(invocation: Invocation) -> int:
    """Create a session from a spec and flags, with the user's keys."""
    options = invocation.options
    spec = read_spec(options.spec) if options.spec else {}
    given = merge(spec, session_options(options))
    ensure_key(invocation.ssh.folder)
    listed = given.get("authorized_keys", [])
    if not isinstance(listed, list):
        raise RefusedError("authorized_keys must be a list of public keys.")
    given["authorized_keys"] = [*listed, *public_keys(invocation.ssh.folder, options.key)]
    wait = options.wait or (MAX_SECONDS if options.follow else 0)
    if not 0 <= wait <= MAX_SECONDS:
        raise RefusedError(f"--wait takes 0 to {MAX_SECONDS} seconds.")
    hosts = options.wait_for_hosts
    result = invocation.ask("create", options=given, dry_run=options.dry_run, wait=wait, wait_for_hosts=hosts)
    record = result.data.get("record") or {}
    if options.json:
        invocation.print_json(record)
    else:
        waits = record.get("status") == "PENDING" and result.status == "done"
        invocation.say(*(tables.announce_wait(record) if waits else [result.message]))
        for kernel in record.get("kernels") or ():
            invocation.say(f"  {kernel.get('hostname'):<8} {kernel.get('agent'):<16} {kernel.get('address') or ''}")
        if record.get("kernels"):
            invocation.say(*tables.next_steps(record, result.data.get("access") or ()))
    follows = options.follow and not options.dry_run and result.status == "done"
    if record and record.get("status") not in ENDED:
        ssh = next((link["ssh"] for link in result.data.get("access", ()) if link["ssh"]), None)
        invocation.keep(lambda: invocation.ssh.change([ssh_config.parse_session({**record, "ssh": ssh})]))
        _offer_include(invocation, later=follows)
    if follows:
        _follow(invocation, str(record["id"]))
        _offer_include(invocation)
    return result.exit_code


def _follow(invocation: Invocation, session_id: str) -> None:
    """Show the output of a session until it ends; its command's failure is this command's."""
    invocation.ask("logs", session=session_id, follow=True)
    record = invocation.ask("show", session=session_id).data.get("record") or {}
    code = record.get("exit_code")
    if code:
        raise CommandError(f"its command has ended with {code}.")


def list_sessions(invocation: Invocation) -> int:
    """List sessions, once or again and again."""
    options = invocation.options
    if options.cached and options.history:
        raise RefusedError("--cached has no history; leave one of both out.")
    fields = {"all": options.all, "cached": options.cached, "history": options.history}
    while True:
        result = invocation.ask("list", **fields)
        if options.json:
            invocation.print_json(result.data["sessions"])
        elif options.names:
            invocation.say(*(str(record.get("name")) for record in result.data["sessions"]))
        else:
            _show_list(result.data, options)
        if not options.watch:
            return 0
        sys.stdout.flush()
        time.sleep(WATCH_SECONDS)


def _show_list(data: Mapping[str, Any], options: argparse.Namespace) -> None:
    console, everybody = tables.make_console(), options.all
    if options.watch and console.is_terminal:
        console.clear()
    if data["age"] is not None:
        tables.make_console(stderr=True).out(f"As seen {duration(data['age'])} ago, by the timer's last run.")
    if data["sessions"]:
        tables.session_table(console, data["sessions"], everybody=everybody, history=options.history)
    else:
        console.out("There are no sessions." if everybody else "You have no sessions; backendai create starts one.")


def show(invocation: Invocation) -> int:
    """Show all about a session."""
    record = invocation.ask("show", session=invocation.options.session).data["record"]
    if invocation.options.json:
        invocation.print_json(record)
    else:
        invocation.say(*tables.describe_session(record))
    return 0


def why(invocation: Invocation) -> int:
    """Say why a session waits, is degraded, or has ended."""
    record = invocation.ask("show", session=invocation.options.session).data["record"]
    if invocation.options.json:
        fields = (
            *("id", "name", "status", "pending", "error", "reason", "exit_code", "queue_position", "closed_storage"),
            *("started_at", "ended_at", "ends_at"),
        )
        invocation.print_json({name: record.get(name) for name in fields})
    else:
        invocation.say(f"{record.get('name')} is {record.get('status')}.", *tables.explain(record))
    return 0


def logs(invocation: Invocation) -> int:
    """Show what the containers have printed."""
    options = invocation.options
    fields = {"session": options.session, "host": options.host, "lines": options.lines}
    if options.follow:
        if options.json:
            raise RefusedError("--json and --follow exclude each other.")
        return invocation.ask("logs", **fields, follow=True).exit_code
    result = invocation.ask("logs", **fields)
    if options.json:
        invocation.print_json(result.data["logs"])
    else:
        tables.show_logs(tables.make_console(), result.data["logs"])
    if result.status == "failed":
        raise CommandError(result.message)
    return 0


def ssh(invocation: Invocation) -> int:
    """Become ssh, to a container of a session."""
    options, folder = invocation.options, invocation.ssh.folder
    try:
        access = _find_access(invocation)
        command = ssh_config.ssh_command(access, folder, options.host, invocation.command, terminal=sys.stdin.isatty())
        os.execvp(command[0], command)
    except FileNotFoundError:
        raise CommandError("ssh is not installed on this host: ask an operator for openssh-client.") from None


def _find_access(invocation: Invocation) -> ssh_config.SshAccess:
    """Return how the session of the command line is reached: as it is known, if it is still there."""
    access = invocation.ssh.find(invocation.options.session)
    return access if access and has_host_key(access) else _ask_access(invocation)


def _ask_access(invocation: Invocation, session: str = "") -> ssh_config.SshAccess:
    """Return how a session is reached now, by default that of the command line, and let ssh know."""
    ensure_key(invocation.ssh.folder)
    result = invocation.ask("access", session=session or invocation.options.session)
    if result.status != "done":
        raise CommandError(result.message)
    access = ssh_config.parse_access(result.data["record"])
    invocation.ssh.change([access])
    return access


def connect(invocation: Invocation) -> int:
    """Connect ssh to a session, whose address is asked for unless it is still where it was.

    ssh has started this, and takes the connection from the socket that is the standard output (ProxyUseFdpass).
    """
    if not stat.S_ISSOCK(os.fstat(1).st_mode):
        raise RefusedError("connect is for ssh, which starts it; backendai ssh logs in.")
    access = _find_access(invocation)
    try:
        link = socket.create_connection((access.host, access.port), SECONDS)
    except OSError as error:
        raise CommandError(f"{access.host}, port {access.port}, does not answer: {error.strerror or error}.") from None
    with link, socket.socket(fileno=os.dup(1)) as taker:
        link.setblocking(True)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        socket.send_fds(taker, [b"\0"], [link.fileno()])
    return 0


def code(invocation: Invocation) -> int:
    """Print a link that opens a session in VS Code, and the two lines that the computer of the editor needs."""
    access = _ask_access(invocation)
    host, port, name = access.host, access.port, access.name
    invocation.say(f"vscode://vscode-remote/ssh-remote+{ssh_config.USER}@{host}:{port}/home/{ssh_config.USER}")
    admit = f"backendai ssh {name} -- 'cat >> .ssh/authorized_keys'"
    sys.stderr.write(
        "On the computer with the editor, so that it and the session know each other's keys (the first line again after"
        " its container has started anew; for good: create --key laptop.pub):\n"
        f'  ssh {getpass.getuser()}@{socket.gethostname()} "{admit}" < ~/.ssh/id_ed25519.pub\n'
        f"  echo '[{host}]:{port} {access.host_keys[ssh_config.MAIN]}' >> ~/.ssh/known_hosts\n"
    )
    return 0


def configure_ssh(invocation: Invocation) -> int:
    """Write the configuration of ssh for the user's sessions, or print one for another computer."""
    options = invocation.options
    if options.key and not options.for_laptop:
        raise RefusedError("--key is for --for-laptop; here, the key is always ~/.ssh/" + KEY_NAME + ".")
    if options.for_laptop and not options.key:
        raise RefusedError("name the private key of the other computer, as in --for-laptop --key '~/.ssh/id_ed25519'.")
    known = {access.id: access for access in invocation.ssh.sessions()}
    accesses, problems = [], []
    for record in invocation.ask("list").data["sessions"]:
        if options.for_laptop and record["status"] not in ("RUNNING", "DEGRADED"):
            continue
        try:
            asked = options.for_laptop and _ask_access(invocation, record["id"])
            accesses.append(asked or known.get(record["id"]) or ssh_config.parse_session(record))
        except CommandError as error:
            problems.append(str(error))
    if options.for_laptop:
        sys.stdout.write(ssh_config.render_laptop_config(accesses, options.key))
    else:
        ensure_key(invocation.ssh.folder)
        invocation.ssh.change(accesses)
        names = ", ".join(access.name for access in invocation.ssh.sessions()) or "no session"
        invocation.say(f"{invocation.ssh.config} has {names}.")
        _offer_include(invocation)
    if problems:
        raise CommandError("\n".join(problems))
    return 0


def open_app(invocation: Invocation) -> int:
    """Print the link of an app, with a token."""
    options = invocation.options
    if not 60 <= options.seconds <= MAX_SECONDS:
        raise RefusedError(f"--seconds takes 60 to {MAX_SECONDS}.")
    answer = invocation.ask("token", session=options.session, seconds=options.seconds).data
    apps = {str(app.get("name")): app.get("url") for app in answer["links"].get("apps") or ()}
    app = options.app or (next(iter(apps)) if len(apps) == 1 else "")
    if app not in apps:
        known = f"its apps are {', '.join(apps)}" if apps else "it was created without apps"
        later = f"; a session gets its apps when it is created: backendai create --app {app or 'APP'}"
        said = f"{options.session} has no app {app}; {known}" if app else f"name an app; {known}"
        raise RefusedError(f"{said}{later if app or not apps else ''}.")
    if not apps[app]:
        raise CommandError(
            f"{app} has no link: it does not use HTTP, or it needs a host name and the gateway has no domain."
            " ssh -L reaches it all the same: backendai ssh-config."
        )
    link = _add_token(str(apps[app]), str(answer["token"]))
    if options.json:
        invocation.print_json({"app": app, "link": link, "expires_at": answer.get("expires_at")})
        return 0
    invocation.say(link)
    tables.make_console(stderr=True).out(
        f"It is valid for {duration(options.seconds)}; whoever has it can use the session."
    )
    return 0


def _add_token(url: str, token: str) -> str:
    page, mark, fragment = url.partition("#")
    return f"{page}{'&' if '?' in page else '?'}token={token}{mark}{fragment}"


def end(invocation: Invocation) -> int:
    """End sessions, one after the other; of several, one that does not end keeps none of the others."""
    first, *others = invocation.options.sessions
    if not others:
        return _end(invocation, first)
    problems = []
    for session in (first, *others):
        try:
            _end(invocation, session)
        except CancelledError:
            raise
        except CommandError as error:
            problems.append(f"{session} is not ended: {error}")
    if problems:
        raise CommandError("\n".join(problems))
    return 0


def _end(invocation: Invocation, session: str) -> int:
    """End a session; on a terminal, ask before the end of one that is older than an hour."""
    options = invocation.options
    confirmed = options.yes or not sys.stdin.isatty()
    result = invocation.ask("end", session=session, force=options.force, confirmed=confirmed)
    if "since" in result.data:
        if not _confirm(f"{session} is {age(result.data['since'])} old. End it?"):
            raise RefusedError("nothing has been changed.")
        result = invocation.ask("end", session=result.data["id"], force=options.force, confirmed=True)
    invocation.say(result.message)
    return result.exit_code


def repair(invocation: Invocation) -> int:
    """Repair a session."""
    result = invocation.ask("repair", session=invocation.options.session, fresh_home=invocation.options.fresh_home)
    invocation.say(result.message)
    return result.exit_code


def agents(invocation: Invocation) -> int:
    """Show what is free."""
    data = invocation.ask("agents").data["agents"]
    if invocation.options.json:
        invocation.print_json(data)
    else:
        tables.show_agents(tables.make_console(), data)
    return 0


def limits(invocation: Invocation) -> int:
    """Show what the user may have, what the user holds, and what is free."""
    data = invocation.ask("limits").data
    if invocation.options.json:
        invocation.print_json(data)
    else:
        tables.show_limits(tables.make_console(), data)
    return 0


def schema(invocation: Invocation) -> int:
    """Print the JSON Schema of a spec."""
    invocation.print_json(build_schema(load_options(invocation.paths.specification)))
    return 0


def template(_invocation: Invocation) -> int:
    """Print a spec to begin with."""
    sys.stdout.write(TEMPLATE)
    return 0


VERBS: Mapping[str, Callable[[Invocation], int]] = {
    "create": create,
    "list": list_sessions,
    "show": show,
    "why": why,
    "logs": logs,
    "ssh": ssh,
    "ssh-config": configure_ssh,
    "connect": connect,
    "code": code,
    "open": open_app,
    "end": end,
    "repair": repair,
    "agents": agents,
    "limits": limits,
    "schema": schema,
    "template": template,
}
