# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the user's part does for each verb."""

from __future__ import annotations

import argparse
import dataclasses
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
from ..places import Places
from ..protocol import MAX_SECONDS, Result
from . import ssh_config, tables
from .arguments import session_options
from .keys import KEY_NAME, ensure_key, public_keys
from .progress import Progress
from .service import Service
from .spec_file import merge, read_spec
from .text import duration, printable

WATCH_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Session:
    """One call of the command: its options, the words behind ``--``, and what it works with."""

    options: argparse.Namespace
    command: Sequence[str]
    places: Places
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


def create(session: Session) -> int:
    """Create a session from a spec and flags, with the user's keys."""
    options = session.options
    spec = read_spec(options.spec) if options.spec else {}
    given = merge(spec, session_options(options))
    ensure_key(session.ssh)
    listed = given.get("authorized_keys", [])
    if not isinstance(listed, list):
        raise RefusedError("authorized_keys must be a list of public keys.")
    given["authorized_keys"] = [*listed, *public_keys(session.ssh, options.key)]
    wait = options.wait or (MAX_SECONDS if options.follow else 0)
    if not 0 <= wait <= MAX_SECONDS:
        raise RefusedError(f"--wait takes 0 to {MAX_SECONDS} seconds.")
    result = session.ask("create", options=given, dry_run=options.dry_run, wait=wait)
    record = result.data.get("record") or {}
    if options.json:
        session.print_json(record)
    else:
        session.say(result.message)
        for kernel in record.get("kernels") or ():
            session.say(f"  {kernel.get('hostname'):<8} {kernel.get('agent'):<16} {kernel.get('address') or ''}")
        if record.get("kernels"):
            session.say(
                f"Log in with backendai ssh {record.get('name')}; end it with backendai end {record.get('name')}."
            )
    if options.follow and not options.dry_run and result.status == "done":
        return _follow(session, str(record["id"]))
    return result.exit_code


def _follow(session: Session, session_id: str) -> int:
    """Show the output of a session until it ends; its command's failure is this command's."""
    session.ask("logs", session=session_id, follow=True)
    record = session.ask("show", session=session_id).data.get("record") or {}
    code = record.get("exit_code")
    if code:
        raise CommandError(f"its command has ended with {code}.")
    return 0


def list_sessions(session: Session) -> int:
    """List sessions, once or again and again."""
    options = session.options
    if options.cached and options.history:
        raise RefusedError("--cached has no history; leave one of both out.")
    fields = {"all": options.all, "cached": options.cached, "history": options.history}
    while True:
        result = session.ask("list", **fields)
        if options.json:
            session.print_json(result.data["sessions"])
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
        tables.make_console(stderr=True).out(f"As seen {duration(data['age'])} ago.")
    if data["sessions"]:
        tables.session_table(console, data["sessions"], everybody=everybody)
    else:
        console.out("There are no sessions." if everybody else "You have no sessions; backendai create starts one.")


def show(session: Session) -> int:
    """Show all about a session."""
    record = session.ask("show", session=session.options.session).data["record"]
    if session.options.json:
        session.print_json(record)
    else:
        session.say(*tables.describe_session(record))
    return 0


def why(session: Session) -> int:
    """Say why a session waits, is degraded, or has ended."""
    record = session.ask("show", session=session.options.session).data["record"]
    if session.options.json:
        fields = ("id", "name", "status", "pending", "error", "reason", "exit_code", "queue_position")
        session.print_json({name: record.get(name) for name in fields})
    else:
        session.say(f"{record.get('name')} is {record.get('status')}.", *tables.explain(record))
    return 0


def logs(session: Session) -> int:
    """Show what the containers have printed."""
    options = session.options
    fields = {"session": options.session, "host": options.host, "lines": options.lines}
    if options.follow:
        if options.json:
            raise RefusedError("--json and --follow exclude each other.")
        return session.ask("logs", **fields, follow=True).exit_code
    result = session.ask("logs", **fields)
    if options.json:
        session.print_json(result.data["logs"])
    else:
        tables.show_logs(tables.make_console(), result.data["logs"])
    if result.status == "failed":
        raise CommandError(result.message)
    return 0


def ssh(session: Session) -> int:
    """Become ssh, to a container of a session."""
    ensure_key(session.ssh)
    found = session.ask("access", session=session.options.session).data["sessions"]
    entrance = ssh_config.parse_entrance(found[0])
    command = ssh_config.ssh_command(
        entrance, session.ssh, session.options.host, session.command, terminal=sys.stdin.isatty()
    )
    _write_known_hosts(session.ssh, [entrance])
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        raise CommandError("ssh is not installed on this host: ask an operator for openssh-client.") from None


def configure_ssh(session: Session) -> int:
    """Write the configuration of ssh for the user's sessions, or print one for another computer."""
    options = session.options
    if options.key and not options.for_laptop:
        raise RefusedError("--key is for --for-laptop; here, the key is always ~/.ssh/" + KEY_NAME + ".")
    if options.for_laptop and not options.key:
        raise RefusedError("name the private key of the other computer, as in --for-laptop --key '~/.ssh/id_ed25519'.")
    entrances, problems = [], []
    for found in session.ask("access").data["sessions"]:
        try:
            entrances.append(ssh_config.parse_entrance(found))
        except CommandError as error:
            problems.append(str(error))
    if options.for_laptop:
        sys.stdout.write(ssh_config.render_laptop_config(entrances, options.key))
    else:
        ensure_key(session.ssh)
        _write_known_hosts(session.ssh, entrances)
        _write(session.ssh / ssh_config.CONFIG_NAME, ssh_config.render_config(entrances, session.ssh))
        names = ", ".join(entrance.name for entrance in entrances) or "no session"
        session.say(f"{session.ssh / ssh_config.CONFIG_NAME} has {names}.")
        session.say(f"Once, as the first line of ~/.ssh/config:  Include {ssh_config.CONFIG_NAME}")
    if problems:
        raise CommandError("\n".join(problems))
    return 0


def _write_known_hosts(folder: Path, entrances: Sequence[ssh_config.Entrance]) -> None:
    path = folder / ssh_config.KNOWN_HOSTS_NAME
    before = path.read_text() if path.exists() else ""
    _write(path, ssh_config.merge_known_hosts(before, entrances))


def _write(path: Path, text: str) -> None:
    """Write a file that only the user reads, at once."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with open(handle, "w") as stream:
        stream.write(text)
    os.replace(temporary, path)


def open_app(session: Session) -> int:
    """Print the link of an app, with a token."""
    options = session.options
    if not 60 <= options.seconds <= MAX_SECONDS:
        raise RefusedError(f"--seconds takes 60 to {MAX_SECONDS}.")
    answer = session.ask("token", session=options.session, seconds=options.seconds).data
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
        session.print_json({"app": app, "link": link, "expires_at": answer.get("expires_at")})
        return 0
    session.say(link)
    tables.make_console(stderr=True).out(
        f"It is valid for {duration(options.seconds)}; whoever has it can use the session."
    )
    return 0


def _add_token(url: str, token: str) -> str:
    page, mark, fragment = url.partition("#")
    return f"{page}{'&' if '?' in page else '?'}token={token}{mark}{fragment}"


def end(session: Session) -> int:
    """End a session."""
    result = session.ask("end", session=session.options.session, force=session.options.force)
    session.say(result.message)
    return result.exit_code


def repair(session: Session) -> int:
    """Repair a session."""
    result = session.ask("repair", session=session.options.session)
    session.say(result.message)
    return result.exit_code


def agents(session: Session) -> int:
    """Show what is free."""
    data = session.ask("agents").data["agents"]
    if session.options.json:
        session.print_json(data)
    else:
        tables.show_agents(tables.make_console(), data)
    return 0


def schema(session: Session) -> int:
    """Print the JSON Schema of a spec."""
    session.print_json(build_schema(load_options(session.places.specification)))
    return 0


def template(_session: Session) -> int:
    """Print a spec to begin with."""
    sys.stdout.write(TEMPLATE)
    return 0


VERBS: Mapping[str, Callable[[Session], int]] = {
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
    "schema": schema,
    "template": template,
}
