# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Installs the certificate and key of a gateway: a given pair, or a self-signed one."""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._host.files import DesiredFile, plan_files, write_files
from .._model.addressing import is_address
from .._model.change import Change
from . import crypto
from .model import GatewayError

RENEW_DAYS, VALID_DAYS = 30, 397

# The organization in certificates that gateways sign themselves.
ISSUER = "backendai.cluster"


@dataclasses.dataclass(frozen=True)
class CertificateFacts:
    """Fields of a certificate. ``expires_at`` is in seconds since the epoch, ``self_signed``: signed by a gateway.

    ``fingerprint`` is the SHA-256 in hexadecimal, without colons.
    """

    names: list[str]
    expires_at: int
    self_signed: bool
    fingerprint: str


def install_certificate(
    path: Path, names: Sequence[str], pem_pair: tuple[str, str] | None, now: float, *, check_mode: bool
) -> tuple[list[Change], CertificateFacts]:
    """Install a certificate and its key in a file: ``pem_pair``, else a self-signed pair for ``names``.

    A self-signed one is kept until the names change or it is about to expire. Return the changes and the facts of the
    certificate; with ``check_mode``, nothing is written. Raises :class:`GatewayError` if cryptography is missing.
    """
    crypto.require()
    before = path.read_text() if path.exists() else ""
    current = parse_certificate(before)
    if pem_pair:
        content = "".join(f"{part.strip()}\n" for part in pem_pair)
    else:
        content = before if current and _is_current(current, names, now) else make_self_signed(names, now)
    facts = parse_certificate(content)
    if facts is None:
        raise GatewayError("certificate: holds no certificate in PEM form")
    drifted = plan_files([DesiredFile(path, content, secret=True)])
    if not check_mode:
        write_files(file for file, _change in drifted)
    subject = f"certificate in {path}"
    if content != before:
        return [Change(subject, _describe(current) if before else None, _describe(facts))], facts
    return [change._replace(subject=subject) for _file, change in drifted], facts


def parse_certificate(pem: str) -> CertificateFacts | None:
    """Return the facts of the first certificate in PEM text; ``None`` without one."""
    try:
        certificate = crypto.x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        return None
    organizations = [
        attribute.value
        for attribute in certificate.subject.get_attributes_for_oid(crypto.oid.NameOID.ORGANIZATION_NAME)
    ]
    return CertificateFacts(
        names=_read_names(certificate),
        expires_at=int(read_timestamp(certificate, "not_valid_after")),
        self_signed=organizations == [ISSUER] and certificate.issuer == certificate.subject,
        fingerprint=certificate.fingerprint(crypto.hashes.SHA256()).hex(),
    )


def make_self_signed(names: Sequence[str], now: float) -> str:
    """Return a self-signed certificate for these host names and addresses, and its key, as PEM."""
    x509, forms = crypto.x509, crypto.serialization
    key = crypto.ec.generate_private_key(crypto.ec.SECP256R1())
    begins = datetime.datetime.fromtimestamp(now, datetime.timezone.utc) - datetime.timedelta(hours=1)
    subject = x509.Name(
        [
            x509.NameAttribute(crypto.oid.NameOID.ORGANIZATION_NAME, ISSUER),
            # Limited to 64 characters; clients check only the alternative names.
            x509.NameAttribute(crypto.oid.NameOID.COMMON_NAME, names[0][:64]),
        ]
    )
    general = [x509.IPAddress(ipaddress.ip_address(name)) if is_address(name) else x509.DNSName(name) for name in names]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(general), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([crypto.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, crypto.hashes.SHA256())
    )
    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    return (certificate.public_bytes(forms.Encoding.PEM) + private).decode()


def read_timestamp(certificate: Any, field: str) -> float:
    """Return ``not_valid_before`` or ``not_valid_after`` in seconds since the epoch."""
    # Since version 42, cryptography warns of times without a zone.
    aware = getattr(certificate, f"{field}_utc", None)
    return float((aware or getattr(certificate, field).replace(tzinfo=datetime.timezone.utc)).timestamp())


def format_date(seconds: float) -> str:
    """Return the date of a time in seconds since the epoch, in UTC."""
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%d")


def _read_names(certificate: crypto.x509.Certificate) -> list[str]:
    x509 = crypto.x509
    try:
        alternative_names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [
        *alternative_names.get_values_for_type(x509.DNSName),
        *map(str, alternative_names.get_values_for_type(x509.IPAddress)),
    ]


def _is_current(facts: CertificateFacts, names: Sequence[str], now: float) -> bool:
    same = facts.self_signed and sorted(facts.names) == sorted(names)
    return same and facts.expires_at - now > RENEW_DAYS * 86400


def _describe(facts: CertificateFacts | None) -> str:
    if facts is None:
        return "(no certificate)"
    origin, expiry = "self-signed" if facts.self_signed else "given", format_date(facts.expires_at)
    return f"for {', '.join(facts.names)} until {expiry}, {origin}, SHA-256 {facts.fingerprint[:16]}"
