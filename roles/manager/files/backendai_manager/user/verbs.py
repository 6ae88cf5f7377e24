# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the user's part does for each verb."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import CommandError, RefusedError
from ..options import TEMPLATE, build_schema, load_options
from ..paths import Paths
from ..protocol import MAX_SECONDS, Result
from . import ssh_config, tables
from .arguments import session_options
from .keys import KEY_NAME, ensure_key, public_keys
from .progress import Progress
from .service import Service
from .spec_file import merge, read_spec
from .text import age, duration, printable

WATCH_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Invocation:
    """One call of the command: its options, the words behind ``--``, and what it works with."""

    options: argparse.Namespace
    command: Sequence[str]
    paths: Paths
    ssh: Path
    service: Service

    def ask(self, verb: str, **fields: Any) -> Result:
        """Return the result of the manager's part. Raises :class:`CommandError` unless it is done, or still waits."""
        output = tables.make_console()
        with Progress(tables.make_console(stderr=True), output, verbose=self.options.verbose) as progress:
            result = self.service.ask(verb, fields, progress.take, progress.stopping)
        if result.status == "refused":
            raise RefusedError(result.message)
        if result.status not in ("done", "pending") and not result.data:
            raise CommandError(result.message or "it has failed.")
        return result

    def say(self, *lines: str) -> None:
        """Print lines."""
        for line in lines:
            sys.stdout.write(f"{printable(line)}\n")

    def print_json(self, data: Any) -> None:
        """Print data for programs."""
        sys.stdout.write(json.dumps(data, indent=2) + "\n")


def create(invocation: Invocation) -> int:
    """Create a session from a spec and flags, with the user's keys."""
    options = invocation.options
    spec = read_spec(options.spec) if options.spec else {}
    given = merge(spec, session_options(options))
    ensure_key(invocation.ssh)
    listed = given.get("authorized_keys", [])
    if not isinstance(listed, list):
        raise RefusedError("authorized_keys must be a list of public keys.")
    given["authorized_keys"] = [*listed, *public_keys(invocation.ssh, options.key)]
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
            invocation.say(
                f"Log in with backendai ssh {record.get('name')}; end it with backendai end {record.get('name')}."
            )
    if options.follow and not options.dry_run and result.status == "done":
        return _follow(invocation, str(record["id"]))
    return result.exit_code


def _follow(invocation: Invocation, session_id: str) -> int:
    """Show the output of a session until it ends; its command's failure is this command's."""
    invocation.ask("logs", session=session_id, follow=True)
    record = invocation.ask("show", session=session_id).data.get("record") or {}
    code = record.get("exit_code")
    if code:
        raise CommandError(f"its command has ended with {code}.")
    return 0


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
            _show_list(result.data, everybody=options.all, clear=options.watch)
        if not options.watch:
            return 0
        sys.stdout.flush()
        time.sleep(WATCH_SECONDS)


def _show_list(data: Mapping[str, Any], *, everybody: bool, clear: bool) -> None:
    console = tables.make_console()
    if clear and console.is_terminal:
        console.clear()
    if data["age"] is not None:
        tables.make_console(stderr=True).out(f"As seen {duration(data['age'])} ago, by the timer's last run.")
    if data["sessions"]:
        tables.session_table(console, data["sessions"], everybody=everybody)
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
        fields = ("id", "name", "status", "pending", "error", "reason", "exit_code", "queue_position", "closed_storage")
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
    ensure_key(invocation.ssh)
    found = invocation.ask("access", session=invocation.options.session).data["sessions"]
    access = ssh_config.parse_access(found[0])
    command = ssh_config.ssh_command(
        access, invocation.ssh, invocation.options.host, invocation.command, terminal=sys.stdin.isatty()
    )
    _write_known_hosts(invocation.ssh, [access])
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        raise CommandError("ssh is not installed on this host: ask an operator for openssh-client.") from None


def configure_ssh(invocation: Invocation) -> int:
    """Write the configuration of ssh for the user's sessions, or print one for another computer."""
    options = invocation.options
    if options.key and not options.for_laptop:
        raise RefusedError("--key is for --for-laptop; here, the key is always ~/.ssh/" + KEY_NAME + ".")
    if options.for_laptop and not options.key:
        raise RefusedError("name the private key of the other computer, as in --for-laptop --key '~/.ssh/id_ed25519'.")
    accesses, problems = [], []
    for found in invocation.ask("access").data["sessions"]:
        try:
            accesses.append(ssh_config.parse_access(found))
        except CommandError as error:
            problems.append(str(error))
    if options.for_laptop:
        sys.stdout.write(ssh_config.render_laptop_config(accesses, options.key))
    else:
        ensure_key(invocation.ssh)
        _write_known_hosts(invocation.ssh, accesses)
        _write(invocation.ssh / ssh_config.CONFIG_NAME, ssh_config.render_config(accesses, invocation.ssh))
        names = ", ".join(access.name for access in accesses) or "no session"
        invocation.say(f"{invocation.ssh / ssh_config.CONFIG_NAME} has {names}.")
        invocation.say(f"Once, as the first line of ~/.ssh/config:  Include {ssh_config.CONFIG_NAME}")
    if problems:
        raise CommandError("\n".join(problems))
    return 0


def _write_known_hosts(folder: Path, accesses: Sequence[ssh_config.SshAccess]) -> None:
    path = folder / ssh_config.KNOWN_HOSTS_NAME
    with (folder / f"{ssh_config.KNOWN_HOSTS_NAME}.lock").open("w") as lock:
        # Another command may add its keys now. A file system without locks has to do without.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        before = path.read_text() if path.exists() else ""
        _write(path, ssh_config.merge_known_hosts(before, accesses))


def _write(path: Path, text: str) -> None:
    """Write a file that only the user reads, at once."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with open(handle, "w") as stream:
        stream.write(text)
    os.replace(temporary, path)


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
        raise RefusedError(f"{options.session} has no app {app}; {known}." if app else f"name an app; {known}.")
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
    """End a session; on a terminal, ask before the end of one that is older than an hour."""
    options = invocation.options
    result = invocation.ask(
        "end", session=options.session, force=options.force, confirmed=options.yes or not sys.stdin.isatty()
    )
    if "since" in result.data:
        sys.stderr.write(f"{printable(options.session)} is {age(result.data['since'])} old. End it? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
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
    "open": open_app,
    "end": end,
    "repair": repair,
    "agents": agents,
    "limits": limits,
    "schema": schema,
    "template": template,
}
