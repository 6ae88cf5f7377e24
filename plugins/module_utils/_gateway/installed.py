# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file with a gateway's certificate and key: what it holds, what it should hold, and the change."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._gateway import certificate
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.errors import GatewayFault
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.store import write_secret
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.token import MISSING
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change

MODE = 0o600


def install(
    path: Path, names: Sequence[str], given: tuple[str, str] | None, now: float, *, dry: bool
) -> tuple[Change | None, dict[str, Any]]:
    """Have a certificate and its key in a file: those ``given`` as PEM, else ones that are made here for ``names``.

    Return what changes, and what the certificate says; with ``dry``, nothing is written. Raises GatewayFault where
    cryptography is missing.
    """
    try:
        before = path.read_bytes() if path.exists() else b""
        content = _wanted(before, names, given, now)
        shown = _shown(content)
    except ImportError as error:
        raise GatewayFault(MISSING.format(error)) from error
    made = given is None and content != before
    change = _change(path, before, content)
    if change and not dry:
        write_secret(path, content)
    return change, {**shown, "fingerprint": None} if made and dry else shown


def _wanted(before: bytes, names: Sequence[str], given: tuple[str, str] | None, now: float) -> bytes:
    if given:
        return "".join(f"{part.strip()}\n" for part in given).encode()
    good = certificate.still_good(certificate.facts_of(before), names, now)
    return before if good else certificate.make(names, now)


def _change(path: Path, before: bytes, after: bytes) -> Change | None:
    subject = f"certificate in {path}"
    if before != after:
        return Change(subject, _line(before) if before else None, _line(after))
    mode = stat.S_IMODE(path.stat().st_mode)
    return Change(subject, f"mode {mode:04o}", f"mode {MODE:04o}") if mode != MODE else None


def _shown(pem: bytes) -> dict[str, Any]:
    facts = certificate.facts_of(pem)
    if facts is None:
        raise GatewayFault("certificate holds no certificate in PEM form")
    names = list(facts.names)
    return {"names": names, "expires_at": facts.expires_at, "own": facts.own, "fingerprint": _fingerprint(pem)}


def _line(pem: bytes) -> str:
    """Return a certificate as one line of a diff."""
    facts = certificate.facts_of(pem)
    if facts is None:
        return "(no certificate)"
    day = datetime.fromtimestamp(facts.expires_at, timezone.utc).strftime("%Y-%m-%d")
    maker = "signed by itself" if facts.own else "given"
    return f"for {', '.join(facts.names) or 'nobody'} until {day}, {maker}, SHA-256 {_fingerprint(pem)[:16]}"


def _fingerprint(pem: bytes) -> str:
    """Return the SHA-256 of the first certificate, as browsers show it, without colons."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    return hashlib.sha256(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)).hexdigest()
