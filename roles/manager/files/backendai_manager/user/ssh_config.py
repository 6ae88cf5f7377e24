# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How sessions are reached over SSH: the configuration, the host keys, and the command."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import itertools
import json
import re
import shlex
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import CommandError

CONFIG_NAME, KNOWN_HOSTS_NAME = "backendai_config", "backendai_known_hosts"
INCLUDE = f"Include {CONFIG_NAME}"
UNWANTED = f"# {INCLUDE}: the user does not want this line in ~/.ssh/config."
COMMAND = "/usr/local/bin/backendai"
MAIN = "main1"
USER = "work"
_SESSION = "# session "

# What comes from hosts must not become another line or word of a configuration.
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_ID = re.compile(r"[0-9a-f-]{36}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]{0,254}")
_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/=]{16,4096}")


@dataclasses.dataclass(frozen=True)
class SshAccess:
    """How one session of a manager is reached: a port of a gateway, and each container's host key by its hostname.

    Without a host (and with port 0), and without keys, as far as they are not known yet.
    """

    id: str
    name: str
    host: str
    port: int
    host_keys: Mapping[str, str]
    manager: str = dataclasses.field(default_factory=socket.gethostname)

    def alias(self, hostname: str = MAIN) -> str:
        """Return the name of a container in the file of known hosts: ports and names are used again, ids never."""
        return f"backendai-{self.id}" if hostname == MAIN else f"backendai-{self.id}-{hostname}"


def parse_access(data: Mapping[str, Any]) -> SshAccess:
    """Return how a session is reached. Raises :class:`CommandError` if it is not, or if a host has sent nonsense."""
    access = parse_session(data)
    if not access.host:
        raise CommandError(
            f"{access.name} is not reachable through a gateway: there is none, or it came after the session."
        )
    if MAIN not in access.host_keys:
        raise CommandError(f"{access.name} has no known host key; backendai repair {access.name} may find it.")
    return access


def parse_session(data: Mapping[str, Any]) -> SshAccess:
    """Return what is known of the way to a session. Raises :class:`CommandError` if a host has sent nonsense.

    The name of somebody else's session is its id: no other user names a host of the caller's ssh.
    """
    name, session_id, keys = data.get("name"), data.get("id"), data.get("host_keys") or {}
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(session_id, str):
        raise CommandError("the manager has sent a session without a name.")
    name = name if data.get("own", True) else session_id
    ssh = data.get("ssh") or {"host": "", "port": 0}
    host, port = (ssh.get("host"), ssh.get("port")) if isinstance(ssh, Mapping) else (None, None)
    valid = (
        bool(_ID.fullmatch(session_id))
        and isinstance(host, str)
        and isinstance(port, int)
        and ((bool(_HOST.fullmatch(host)) and 0 < port < 1 << 16) or (host, port) == ("", 0))
        and isinstance(keys, Mapping)
        and all(_NAME.fullmatch(str(hostname)) and _KEY.fullmatch(str(key)) for hostname, key in keys.items())
    )
    if not valid or not isinstance(host, str) or not isinstance(port, int):
        raise CommandError(f"the gateway has sent an address or a host key of {name} that is not valid.")
    known = {str(hostname): str(key) for hostname, key in keys.items()}
    return SshAccess(session_id, name, host, port, known, str(data.get("manager") or socket.gethostname()))


def ssh_command(access: SshAccess, folder: Path, host: str, command: Sequence[str], *, terminal: bool) -> list[str]:
    """Return the command that logs in to a container: to main1, and from there to the others."""
    if host and host not in access.host_keys:
        raise CommandError(f"{access.name} has no container {host}; it has {', '.join(access.host_keys)}.")
    words, remote = ["ssh", "-F", str(folder / CONFIG_NAME)], " ".join(command)
    if host and host != MAIN:
        # In main1, names, ports, keys and known hosts of the session are there already.
        inner = ["exec", "ssh", *(["-t"] if terminal and not command else []), host]
        remote = " ".join([*inner, *([shlex.quote(remote)] if remote else [])])
    if terminal and not command:
        words.append("-t")
    return [*words, "--", access.name, *([remote] if remote else [])]


def render_config(accesses: Sequence[SshAccess], folder: Path, *, unwanted: bool = False) -> str:
    """Return a configuration for ``Include``: by a session's name one gets to main1, by ``sub1.NAME`` to ``sub1``.

    :func:`parse_config` finds the sessions in it again. ``unwanted``: the user wants no ``Include``.
    """
    lines = ["# Written by backendai. The first line of ~/.ssh/config, before any Host:", f"#   {INCLUDE}"]
    lines += [UNWANTED] if unwanted else []
    for access in accesses:
        common = [
            f"  User {USER}",
            f"  IdentityFile {_quoted(folder / 'backendai_ed25519')}",
            f"  UserKnownHostsFile {_quoted(folder / KNOWN_HOSTS_NAME)}",
            "  GlobalKnownHostsFile none",
            "  StrictHostKeyChecking yes",
            *(["  ForwardAgent no"] if access.name == access.id else []),
        ]
        way = [f"  ProxyCommand {COMMAND} connect {access.id}", "  ProxyUseFdpass yes"]
        lines += ["", f"{_SESSION}{json.dumps(dataclasses.asdict(access))}", *_hosts(access, way, common)]
    return "\n".join(lines) + "\n"


def parse_config(text: str) -> list[SshAccess]:
    """Return the sessions in a configuration that :func:`render_config` has written; any other line is none."""
    accesses = []
    for line in text.splitlines():
        if line.startswith(_SESSION):
            with contextlib.suppress(ValueError, TypeError, CommandError):
                known = json.loads(line.removeprefix(_SESSION))
                accesses.append(parse_session({"ssh": known, **known}))
    return accesses


def includes(text: str) -> bool:
    """Return whether a configuration of the user includes that of the sessions for all hosts, in whatever spelling."""
    lines = (re.split(r'[\s="]+', line.strip()) for line in text.splitlines())
    everywhere = itertools.takewhile(lambda words: words[0].lower() not in ("host", "match"), lines)
    paths = [Path(word) for words in everywhere if words[0].lower() == "include" for word in words[1:]]
    return any(path.parent.name in ("", ".ssh") and fnmatch.fnmatch(CONFIG_NAME, path.name) for path in paths)


def render_laptop_config(accesses: Sequence[SshAccess], keys: Sequence[str]) -> str:
    """Return a configuration for another computer, in one file: host keys are in it, private keys are those named."""
    lines = [
        "# Written by backendai ssh-config --for-laptop. Save it as ~/.ssh/backendai_config, and put this into",
        "# ~/.ssh/config, before any Host:  Include backendai_config",
    ]
    for access in accesses:
        common = [f"  User {USER}", *(f"  IdentityFile {_quoted(Path(key))}" for key in keys)]
        common += ["  UserKnownHostsFile none", "  GlobalKnownHostsFile none", "  StrictHostKeyChecking yes"]
        lines += _hosts(access, [f"  HostName {access.host}", f"  Port {access.port}"], common, inline=True)
    return "\n".join(lines) + "\n"


def _hosts(access: SshAccess, way: Sequence[str], common: Sequence[str], *, inline: bool = False) -> list[str]:
    lines = []
    for hostname, key in {MAIN: "", **access.host_keys}.items():
        if hostname == MAIN:
            lines += ["", f"Host {access.name}", *way]
        else:
            lines += ["", f"Host {hostname}.{access.name}", f"  HostName {hostname}", f"  ProxyJump {access.name}"]
        lines += [f"  HostKeyAlias {access.alias(hostname)}", *common]
        lines += [f"  KnownHostsCommand /bin/echo {access.alias(hostname)} {key}"] if inline else []
    return lines


def _quoted(path: Path) -> str:
    """Return a path as a word of a configuration. Raises :class:`CommandError` for one that cannot be written there."""
    text = str(path).replace("%", "%%")
    if '"' in text or "\\" in text or "${" in text or not text.isprintable():
        raise CommandError(f"the path {text!r} cannot be used in a configuration of ssh.")
    return text if re.fullmatch(r"[\w./%+@:~-]+", text) else f'"{text}"'
