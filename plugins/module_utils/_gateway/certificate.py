# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The certificate of a gateway: one that is given, or one that the gateway makes and signs itself."""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
from collections.abc import Sequence
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import ClusterError

RENEW_DAYS, VALID_DAYS = 30, 397
MAKER = "backendai.cluster"
"""The organization in certificates that gateways sign themselves."""


class CertificateError(ClusterError):
    """A certificate or its key cannot be used; the message says why, in the middle of a sentence."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a certificate says: who it is for, when it ends (seconds since the epoch), and whether a gateway made it."""

    names: tuple[str, ...]
    expires_at: int
    own: bool


def check_pair(certificate: bytes, key: bytes, now: float) -> Facts:
    """Return what a given certificate says, both as PEM; the chain may follow it.

    Raises :class:`CertificateError` whose text begins with the part that is wrong: ``certificate`` or ``key``.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        found = x509.load_pem_x509_certificate(certificate)
    except ValueError:
        raise CertificateError("certificate holds no certificate in PEM form") from None
    try:
        private = load_pem_private_key(key, None)
    except TypeError:
        raise CertificateError("key is encrypted with a passphrase, which HAProxy could not ask for") from None
    except ValueError:
        raise CertificateError("key holds no private key in PEM form") from None
    facts = _facts(found)
    if facts.expires_at <= now:
        raise CertificateError(f"certificate has expired on {_day(facts.expires_at)}")
    begins_at = _seconds(found, "not_valid_before")
    if begins_at > now:
        raise CertificateError(f"certificate is not valid before {_day(begins_at)}")
    if _public(private) != _public(found):
        raise CertificateError("key does not fit the certificate")
    return facts


def facts_of(pem: bytes) -> Facts | None:
    """Return what a certificate as PEM says; ``None`` for anything else."""
    from cryptography import x509

    try:
        return _facts(x509.load_pem_x509_certificate(pem))
    except ValueError:
        return None


def still_good(facts: Facts | None, names: Sequence[str], now: float) -> bool:
    """Return whether a certificate that a gateway made is for exactly these names, and will be for a while."""
    good = facts is not None and facts.own and sorted(facts.names) == sorted(names)
    return good and facts is not None and facts.expires_at - now > RENEW_DAYS * 86400


def make(names: Sequence[str], now: float) -> bytes:
    """Return a key and a certificate for these host names and addresses, signed by itself, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    begins = datetime.datetime.fromtimestamp(now, datetime.timezone.utc) - datetime.timedelta(hours=1)
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, MAKER),
            # 64 characters are allowed here; clients look at the alternative names alone.
            x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64]),
        ]
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    return bytes(certificate.public_bytes(forms.Encoding.PEM) + private)


def _general(name: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _facts(certificate: Any) -> Facts:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = [*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))]
    except x509.ExtensionNotFound:
        names = []
    makers = [one.value for one in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    own = makers == [MAKER] and certificate.issuer == certificate.subject
    return Facts(tuple(names), _seconds(certificate, "not_valid_after"), own)


def _seconds(certificate: Any, field: str) -> int:
    """Return a time of a certificate; newer versions of cryptography have a field for times with a zone."""
    aware = getattr(certificate, f"{field}_utc", None)
    moment = aware or getattr(certificate, field).replace(tzinfo=datetime.timezone.utc)
    return int(moment.timestamp())


def _public(holder: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization as forms

    return bytes(holder.public_key().public_bytes(forms.Encoding.DER, forms.PublicFormat.SubjectPublicKeyInfo))


def _day(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%d")
