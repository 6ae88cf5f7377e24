# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The user's SSH keys: one of this command, and all others that the user has."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..errors import CommandError, RefusedError
from ..files import read_regular_file

KEY_NAME = "backendai_ed25519"
MAX_KEY = 1 << 14
MAX_KEYS = 100
_AGENT_SECONDS = 5.0

# What sessions take, and no certificates: a test compares it with OpenSSH, and with what the control node takes.
KEY_TYPES = (
    "ssh-ed25519",
    "sk-ssh-ed25519@openssh.com",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "ssh-rsa",
)
_KEY = re.compile(rf"(({'|'.join(map(re.escape, KEY_TYPES))}) AAAA[A-Za-z0-9+/=]+)([ \t].*)?")


def ensure_key(folder: Path) -> Path:
    """Return the path of the private key of this command, which is made at its first use."""
    path = folder / KEY_NAME
    public = folder / f"{KEY_NAME}.pub"
    if path.exists() and public.exists():
        return path
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "backendai", "-f", str(path)]
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists():
            with public.open("wb") as stream:
                subprocess.run(
                    ["ssh-keygen", "-y", "-P", "", "-f", str(path)],
                    check=True,
                    stdout=stream,
                    stderr=subprocess.DEVNULL,
                )
        else:
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    except FileNotFoundError:
        raise CommandError("ssh-keygen is not installed: ask an operator for openssh-client.") from None
    except (OSError, subprocess.CalledProcessError):
        raise CommandError(f"the key {path} cannot be made: look at the folder and its permissions.") from None
    return path


def public_keys(folder: Path, named: Iterable[str] = ()) -> list[str]:
    """Return the public keys of this command, of the user's agent and folder, and in the ``named`` files, each once."""
    own = _read(folder / f"{KEY_NAME}.pub")
    texts = [own, *(_read_named(name) for name in named), _ask_agent(), *map(_read, sorted(folder.glob("*.pub")))]
    keys = {key: None for text in texts for key in _keys(text)}
    return list(keys)[:MAX_KEYS]


def _keys(text: str) -> Iterator[str]:
    """Yield the keys of a text without their comments, which say more of their owner than a session needs."""
    for line in text.splitlines():
        match = _KEY.fullmatch(line.strip())
        if match:
            yield match[1]


def _read(path: Path) -> str:
    try:
        return read_regular_file(path, MAX_KEY).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def _read_named(name: str) -> str:
    text = _read(Path(name))
    if "PRIVATE KEY" in text:
        raise RefusedError(f"{name} is a private key; name its public half, {name}.pub.")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    problem = next((line for line in lines if not list(_keys(line))), "" if lines else name)
    if "-cert-v01@" in problem:
        raise RefusedError(f"{name} is a certificate; name the public key that it is for.")
    if problem:
        raise RefusedError(
            f"{name} has no SSH public key, or something else beside keys, such as options before one."
            f" The types are {', '.join(KEY_TYPES)}."
        )
    return text


def _ask_agent() -> str:
    if not os.environ.get("SSH_AUTH_SOCK"):
        return ""
    try:
        completed = subprocess.run(
            ["ssh-add", "-L"], capture_output=True, stdin=subprocess.DEVNULL, timeout=_AGENT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return completed.stdout.decode(errors="replace")
