# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validates the public keys of users: sshd ignores a line of authorized_keys that it cannot read, without a word."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence

from ..module_utils._model.validation import ValidationError

# The types that OpenSSH accepts, and how many fields a key of each has. Those of its certificates are not among them:
# in authorized_keys it takes no certificate, but the key of who signs them.
KEY_TYPES = {
    "ssh-ed25519": 1,
    "sk-ssh-ed25519@openssh.com": 2,
    "ecdsa-sha2-nistp256": 2,
    "ecdsa-sha2-nistp384": 2,
    "ecdsa-sha2-nistp521": 2,
    "sk-ecdsa-sha2-nistp256@openssh.com": 3,
    "ssh-rsa": 2,
}

_CERTIFICATE = "-cert-v01@openssh.com"


def check_public_keys(keys: Sequence[str]) -> None:
    """Raise :class:`ValidationError` for the first key that OpenSSH would not accept, or that has options before it."""
    for index, key in enumerate(keys):
        problem = _find_problem(key)
        if problem:
            raise ValidationError(f"session_authorized_keys[{index}]: {key[:40]!r} {problem}.")


def _find_problem(key: str) -> str:
    """Return why a line is no public key, as a phrase; empty if it is one."""
    kind, _space, rest = key.strip().partition(" ")
    if not key.strip().isprintable():
        return _NO_KEY
    if kind.endswith(_CERTIFICATE):
        return f"is a certificate: give the key that it is for ({kind.removesuffix(_CERTIFICATE)} …)"
    if kind not in KEY_TYPES:
        has_options = any(f" {known} " in f" {rest}" for known in KEY_TYPES)
        return "has options before the key: give the key alone" if has_options else _NO_KEY
    try:
        fields = list(_fields(base64.b64decode(rest.split()[0], validate=True)))
    except (IndexError, ValueError, binascii.Error):
        return f"is not a whole key of type {kind}: copy the file with .pub at its end again"
    return "" if fields[0] == kind.encode() and len(fields) == KEY_TYPES[kind] + 1 else f"is not of type {kind}"


_NO_KEY = f"is not an OpenSSH public key ({', '.join(KEY_TYPES)})"


def _fields(data: bytes) -> Iterator[bytes]:
    """Yield the fields of a key, each with its size before it. Raises :class:`ValueError` if one is cut off."""
    position = 0
    while position < len(data) or not position:
        size = int.from_bytes(data[position : position + 4], "big")
        field = data[position + 4 : position + 4 + size]
        if not field or len(field) < size:
            raise ValueError("cut off")
        yield field
        position += 4 + size
