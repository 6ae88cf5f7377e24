# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validates the public keys of users: sshd ignores a line of authorized_keys that it cannot read, without a word."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ..module_utils._model.validation import ValidationError

# Of each curve its size in bytes, and p and b of its equation (FIPS 186-4, D.1.2): a point that does not fit is no key.
_CURVES = {
    "nistp256": (
        *(32, 2**256 - 2**224 + 2**192 + 2**96 - 1),
        0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B,
    ),
    "nistp384": (
        *(48, 2**384 - 2**128 - 2**96 + 2**32 - 1),
        0xB3312FA7E23EE7E4988E056BE3F82D19181D9C6EFE8141120314088F5013875AC656398D8A2ED19D2A85C8EDD3EC2AEF,
    ),
    "nistp521": (
        *(66, 2**521 - 1),
        int(
            "0051953EB9618E1C9A1F929A21A0B68540EEA2DA725B99B315F3B8B489918EF109E156193951EC7E937B1652C0BD3BB1BF073573DF"
            "883D2C34F1EF451FD46B503F00",
            16,
        ),
    ),
}
_RSA_BITS = (1024, 16384)


def _c_string(field: bytes) -> bytes:
    """Return a field that may have an end mark, as OpenSSH reads it."""
    return field.removesuffix(b"\0")


def _is_ed25519(fields: Sequence[bytes]) -> bool:
    return len(fields) == 1 and len(fields[0]) == 32


def _is_on(curve: str, fields: Sequence[bytes]) -> bool:
    size, p, b = _CURVES[curve]
    if (
        len(fields) != 2
        or _c_string(fields[0]) != curve.encode()
        or len(fields[1]) != 2 * size + 1
        or fields[1][0] != 4
    ):
        return False
    x, y = int.from_bytes(fields[1][1 : size + 1], "big"), int.from_bytes(fields[1][size + 1 :], "big")
    return max(x, y) < p and (y * y - x * x * x + 3 * x - b) % p == 0


def _is_rsa(fields: Sequence[bytes]) -> bool:
    """Return whether fields are an exponent and a modulus. sshd takes no negative number, and no short modulus."""
    if len(fields) != 2 or any(field[:1] >= b"\x80" for field in fields):
        return False
    exponent, modulus = (int.from_bytes(field, "big").bit_length() for field in fields)
    return exponent <= _RSA_BITS[1] and _RSA_BITS[0] <= modulus <= _RSA_BITS[1]


def _of_token(check: Callable[[Sequence[bytes]], bool]) -> Callable[[Sequence[bytes]], bool]:
    """Return the check of a key in a token, which has the name of an application, a C string, after it."""
    return lambda fields: bool(fields) and b"\0" not in _c_string(fields[-1]) and check(fields[:-1])


# The types that OpenSSH accepts, and the check of what a key of each has. Those of its certificates are not among them:
# in authorized_keys it takes no certificate, but the key of who signs them.
KEY_TYPES: dict[str, Callable[[Sequence[bytes]], bool]] = {
    "ssh-ed25519": _is_ed25519,
    "sk-ssh-ed25519@openssh.com": _of_token(_is_ed25519),
    **{f"ecdsa-sha2-{curve}": partial(_is_on, curve) for curve in _CURVES},
    "sk-ecdsa-sha2-nistp256@openssh.com": _of_token(partial(_is_on, "nistp256")),
    "ssh-rsa": _is_rsa,
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
    # For OpenSSH, a tab is as good as a space.
    line = key.strip().replace("\t", " ")
    kind, _space, rest = line.partition(" ")
    if not line.isprintable():
        return _NO_KEY
    if kind.endswith(_CERTIFICATE):
        return f"is a certificate: give the key that it is for ({kind.removesuffix(_CERTIFICATE)} …)"
    if kind not in KEY_TYPES:
        has_options = any(f" {known} " in f" {rest}" for known in KEY_TYPES)
        return "has options before the key: give the key alone" if has_options else _NO_KEY
    return _find_damage(kind, rest.split()[0] if rest.split() else "")


def _find_damage(kind: str, encoded: str) -> str:
    """Return why a text is no key of that type, as a phrase; empty if it is one."""
    damage = f"is not a whole key of type {kind}: copy the file with .pub at its end again"
    try:
        data = base64.b64decode(encoded, validate=True)
        named, *fields = _fields(data)
    except ValueError:
        return damage
    if _c_string(named) != kind.encode():
        return f"is not of type {kind}"
    if base64.b64encode(data).decode() == encoded and KEY_TYPES[kind](fields):
        return ""
    if kind == "ssh-rsa" and len(fields) == 2 and int.from_bytes(fields[1], "big").bit_length() < _RSA_BITS[0]:
        return f"has fewer than {_RSA_BITS[0]:,} bits, and sshd ignores such a key: make another one"
    return damage


_NO_KEY = f"is not an OpenSSH public key ({', '.join(KEY_TYPES)})"


def _fields(data: bytes) -> Iterator[bytes]:
    """Yield the fields of a key, each with its size before it. Raises :class:`ValueError` if one is cut off."""
    position = 0
    while position < len(data) or not position:
        size = int.from_bytes(data[position : position + 4], "big")
        field = data[position + 4 : position + 4 + size]
        if position + 4 > len(data) or len(field) < size:
            raise ValueError("cut off")
        yield field
        position += 4 + size
