# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tokens: JSON Web Tokens (RFC 7519) that a gateway signs with ES256, and that HAProxy checks.

The key never leaves its gateway; the others of the group know its public half.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.errors import GatewayFault
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.store import write_secret

LEAST_SECONDS, MOST_SECONDS = 60, 30 * 86400


ISSUER = "backendai-gateway"
COORDINATE = 32
"""Bytes of each of the two numbers of a signature (RFC 7518, section 3.4)."""

MISSING = (
    "the Python package cryptography is missing on this host ({}): run backendai.cluster.provision_gateways on it."
)


def public_key(path: Path) -> str:
    """Return the public half, as PEM, of the key in a file. Raises :class:`GatewayFault` where there is none."""
    key = _load(path)
    from cryptography.hazmat.primitives import serialization as forms

    pem = key.public_key().public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    return str(pem.decode())


def make_key(path: Path) -> None:
    """Make a key in a file for root alone."""
    try:
        from cryptography.hazmat.primitives import serialization as forms
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise GatewayFault(MISSING.format(error)) from error
    key = ec.generate_private_key(ec.SECP256R1())
    write_secret(path, key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()))


def claims_of(session_id: str, name: str, issued_at: int, seconds: int) -> dict[str, Any]:
    """Return what a token says: it opens the session of that id, until it expires."""
    return {
        "iss": ISSUER,
        "sub": session_id,
        "session": name,
        "iat": issued_at,
        "exp": issued_at + seconds,
    }


def sign(path: Path, claims: Mapping[str, Any]) -> str:
    """Return the claims as a token, signed with the key in a file. Raises :class:`GatewayFault`."""
    key = _load(path)
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    body = f"{_encoded({'alg': 'ES256', 'typ': 'JWT'})}.{_encoded(claims)}"
    numbers = decode_dss_signature(key.sign(body.encode(), ec.ECDSA(hashes.SHA256())))
    signature = b"".join(number.to_bytes(COORDINATE, "big") for number in numbers)
    return f"{body}.{_base64(signature)}"


def _load(path: Path) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise GatewayFault(MISSING.format(error)) from error
    try:
        return load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise GatewayFault(
            f"{path} cannot be read ({error.strerror}): run backendai.cluster.provision_gateways on this host."
        ) from error
    except ValueError as error:
        raise GatewayFault(
            f"{path} is damaged: remove it, and run backendai.cluster.provision_gateways on all gateways."
        ) from error


def _encoded(data: Mapping[str, Any]) -> str:
    return _base64(json.dumps(data, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
