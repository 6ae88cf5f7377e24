# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Issues JSON Web Tokens (RFC 7519) that a gateway signs with ES256 and HAProxy checks.

The private key never leaves its gateway; other gateways of the group have the public key.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._model.files import write_atomically
from . import crypto
from .model import MAX_TTL, MIN_TTL, GatewayError
from .routes import Route, build_app_links
from .store import GatewayStore

ISSUER = "backendai-gateway"

# Bytes of each of the two numbers of a signature (RFC 7518, section 3.4).
COORDINATE_BYTES = 32


def public_key(path: Path) -> str:
    """Return the public key of the private key in a file, as PEM. Raises :class:`GatewayError` without one."""
    forms = crypto.serialization
    pem = _load_key(path).public_key().public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    return str(pem.decode())


def make_token_key(path: Path) -> None:
    """Write a new private key to a file that only root can read. Raises :class:`GatewayError` without cryptography."""
    crypto.require()
    forms, key = crypto.serialization, crypto.ec.generate_private_key(crypto.ec.SECP256R1())
    write_atomically(path, key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()))


def issue_token(store: GatewayStore, name: str, session_id: str, seconds: int, *, check_mode: bool) -> dict[str, Any]:
    """Return ``session``, ``links``, ``expires_at`` and a ``token`` for one session; with ``check_mode`` no token.

    Raises :class:`GatewayError` without such a session, and ValueError for an invalid lifetime.
    """
    if not MIN_TTL <= seconds <= MAX_TTL:
        raise ValueError(f"ttl: {seconds} must be a whole number from {MIN_TTL} to {MAX_TTL}")
    with store.lock():
        gateway = store.gateway()
        route = _find_route(store, name, session_id)
    claims = build_claims(route.id, route.name, int(time.time()), seconds)
    session = {"id": route.id, "name": route.name}
    issued = {"session": session, "links": build_app_links(route, gateway), "expires_at": claims["exp"]}
    return issued if check_mode else {**issued, "token": sign(store.key, claims)}


def build_claims(session_id: str, name: str, issued_at: int, seconds: int) -> dict[str, Any]:
    """Return the claims of a token: it grants access to one session until it expires."""
    expires_at = issued_at + seconds
    return {"iss": ISSUER, "sub": session_id, "session": name, "iat": issued_at, "exp": expires_at}


def sign(path: Path, claims: Mapping[str, Any]) -> str:
    """Return the claims as a token, signed with the key in a file. Raises :class:`GatewayError`."""
    key = _load_key(path)
    body = f"{_encode({'alg': 'ES256', 'typ': 'JWT'})}.{_encode(claims)}"
    signed = key.sign(body.encode(), crypto.ec.ECDSA(crypto.hashes.SHA256()))
    numbers = crypto.utils.decode_dss_signature(signed)
    return f"{body}.{_encode_base64(b''.join(number.to_bytes(COORDINATE_BYTES, 'big') for number in numbers))}"


def _find_route(store: GatewayStore, name: str, session_id: str) -> Route:
    routes, damaged = store.routes()
    matches = [
        route
        for route in routes.values()
        if name in ("", route.name) and session_id in ("", route.id) and (name or session_id)
    ]
    if len(matches) != 1:
        criteria = " and ".join(f"{key} {value!r}" for key, value in (("name", name), ("id", session_id)) if value)
        unread = f"; not read: {' '.join(sorted(damaged.values()))}" if damaged else ""
        raise GatewayError(f"there is no session with the {criteria} behind this gateway{unread}")
    return matches[0]


def _load_key(path: Path) -> Any:
    crypto.require()
    try:
        return crypto.serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise GatewayError(
            f"{path} cannot be read ({error.strerror}): run backendai.cluster.provision_gateways on this host."
        ) from error
    except ValueError as error:
        raise GatewayError(
            f"{path} is damaged: remove it, and run backendai.cluster.provision_gateways on all gateways."
        ) from error


def _encode(data: Mapping[str, Any]) -> str:
    return _encode_base64(json.dumps(data, separators=(",", ":")).encode())


def _encode_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
