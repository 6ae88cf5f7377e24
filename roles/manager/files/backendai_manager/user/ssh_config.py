# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How sessions are reached over SSH: the configuration, the host keys, and the command."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import CommandError

CONFIG_NAME, KNOWN_HOSTS_NAME = "backendai_config", "backendai_known_hosts"
MAIN = "main1"
USER = "work"

# What comes from hosts must not become another line or word of a configuration.
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_ID = re.compile(r"[0-9a-f-]{36}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]{0,254}")
_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/=]{16,4096}")


@dataclasses.dataclass(frozen=True)
class SshAccess:
    """How one session is reached: a port of a gateway, and the host key of each container by its hostname."""

    id: str
    name: str
    host: str
    port: int
    host_keys: Mapping[str, str]

    def alias(self, hostname: str = MAIN) -> str:
        """Return the name of a container in the file of known hosts: ports and names are used again, ids never."""
        return f"backendai-{self.id}" if hostname == MAIN else f"backendai-{self.id}-{hostname}"

    @property
    def known_hosts(self) -> list[str]:
        """The lines for the file of known hosts."""
        return [f"{self.alias(hostname)} {key}" for hostname, key in self.host_keys.items()]


def parse_access(data: Mapping[str, Any]) -> SshAccess:
    """Return how a session is reached. Raises :class:`CommandError` if it is not, or if a host has sent nonsense."""
    name, session_id, ssh, keys = (data.get(key) for key in ("name", "id", "ssh", "host_keys"))
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(session_id, str):
        raise CommandError("the manager has sent a session without a name.")
    if not isinstance(ssh, Mapping):
        raise CommandError(f"{name} is not reachable through a gateway: there is none, or it came after the session.")
    if not isinstance(keys, Mapping) or not keys.get(MAIN):
        raise CommandError(f"{name} has no known host key; backendai repair {name} may find it.")
    host, port = ssh.get("host"), ssh.get("port")
    valid = (
        bool(_ID.fullmatch(session_id))
        and isinstance(host, str)
        and bool(_HOST.fullmatch(host))
        and isinstance(port, int)
        and 0 < port < 1 << 16
        and all(_NAME.fullmatch(str(hostname)) and _KEY.fullmatch(str(key)) for hostname, key in keys.items())
    )
    if not valid or not isinstance(host, str) or not isinstance(port, int):
        raise CommandError(f"the gateway has sent an address or a host key of {name} that is not valid.")
    return SshAccess(session_id, name, host, port, {str(hostname): str(key) for hostname, key in keys.items()})


def ssh_command(access: SshAccess, folder: Path, host: str, command: Sequence[str], *, terminal: bool) -> list[str]:
    """Return the command that logs in to a container: to main1, and from there to the others."""
    if host and host not in access.host_keys:
        raise CommandError(f"{access.name} has no container {host}; it has {', '.join(access.host_keys)}.")
    options = {
        "Port": access.port,
        "User": USER,
        "IdentityFile": _quoted(folder / "backendai_ed25519"),
        "HostKeyAlias": access.alias(),
        "UserKnownHostsFile": _quoted(folder / KNOWN_HOSTS_NAME),
        "GlobalKnownHostsFile": "none",
        "StrictHostKeyChecking": "yes",
    }
    words = ["ssh", *(f"-o{name}={value}" for name, value in options.items())]
    remote = " ".join(command)
    if host and host != MAIN:
        # In main1, names, keys and known hosts of the session are there already.
        inner = ["exec", "ssh", *(["-t"] if terminal and not command else []), host]
        remote = " ".join([*inner, *([shlex.quote(remote)] if remote else [])])
    if terminal and not command:
        words.append("-t")
    return [*words, "--", access.host, *([remote] if remote else [])]


def render_config(accesses: Sequence[SshAccess], folder: Path) -> str:
    """Return a configuration for ``Include``: by a session's name one gets to main1, by ``sub1.NAME`` to ``sub1``."""
    lines = [
        "# Written by backendai ssh-config. Put this into ~/.ssh/config, before any Host:",
        f"#   Include {CONFIG_NAME}",
    ]
    for access in accesses:
        common = [
            f"  User {USER}",
            f"  IdentityFile {_quoted(folder / 'backendai_ed25519')}",
            f"  UserKnownHostsFile {_quoted(folder / KNOWN_HOSTS_NAME)}",
            "  GlobalKnownHostsFile none",
            "  StrictHostKeyChecking yes",
        ]
        lines += _hosts(access, common)
    return "\n".join(lines) + "\n"


def render_laptop_config(accesses: Sequence[SshAccess], keys: Sequence[str]) -> str:
    """Return a configuration for another computer, in one file: host keys are in it, private keys are those named."""
    lines = [
        "# Written by backendai ssh-config --for-laptop. Save it as ~/.ssh/backendai_config, and put this into",
        "# ~/.ssh/config, before any Host:  Include backendai_config",
    ]
    for access in accesses:
        common = [f"  User {USER}", *(f"  IdentityFile {_quoted(Path(key))}" for key in keys)]
        common += ["  UserKnownHostsFile none", "  GlobalKnownHostsFile none", "  StrictHostKeyChecking yes"]
        lines += _hosts(access, common, inline=True)
    return "\n".join(lines) + "\n"


def _hosts(access: SshAccess, common: Sequence[str], *, inline: bool = False) -> list[str]:
    lines = []
    for hostname, key in access.host_keys.items():
        if hostname == MAIN:
            lines += ["", f"Host {access.name}", f"  HostName {access.host}", f"  Port {access.port}"]
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
    return f'"{text}"' if " " in text else text


def merge_known_hosts(before: str, accesses: Sequence[SshAccess]) -> str:
    """Return a file of known hosts with the keys of sessions; lines of other sessions stay as they are."""
    new = {line for access in accesses for line in access.known_hosts}
    aliases = {line.partition(" ")[0] for line in new}
    kept = [line for line in before.splitlines() if line.partition(" ")[0] not in aliases]
    return "".join(f"{line}\n" for line in [*kept, *sorted(new)])
