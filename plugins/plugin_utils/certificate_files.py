# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the operator's certificate and key from files on the control node."""

from __future__ import annotations

import os
import time
from typing import Any

from ..module_utils._gateway import crypto
from ..module_utils._gateway.certificate import format_date, read_timestamp
from ..module_utils._model.validation import ValidationError

CERTIFICATE, KEY = "gateway_certificate", "gateway_certificate_key"


def read_pair(certificate: str, key: str) -> tuple[str, str]:
    """Return the validated content of both files; two empty strings if none is configured.

    Raises :class:`ValidationError` with one sentence if they cannot be used.
    """
    if not certificate:
        return "", ""
    pem, key_pem = _read(CERTIFICATE, certificate), _read(KEY, key)
    try:
        parsed = crypto.x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise _file_error(CERTIFICATE, certificate, "holds no certificate in PEM form") from None
    try:
        private = crypto.serialization.load_pem_private_key(key_pem, None)
    except TypeError:
        reason = "is encrypted with a passphrase, which HAProxy cannot prompt for"
        raise _file_error(KEY, key, reason) from None
    except ValueError:
        raise _file_error(KEY, key, "holds no private key in PEM form") from None
    begins_at, expires_at = (read_timestamp(parsed, field) for field in ("not_valid_before", "not_valid_after"))
    if expires_at <= time.time():
        raise _file_error(CERTIFICATE, certificate, f"expired on {format_date(expires_at)}")
    if begins_at > time.time():
        raise _file_error(CERTIFICATE, certificate, f"is not valid before {format_date(begins_at)}")
    if _public_bytes(private) != _public_bytes(parsed):
        raise _file_error(KEY, key, "does not fit the certificate")
    return pem.decode(), key_pem.decode()


def _public_bytes(holder: Any) -> bytes:
    forms = crypto.serialization
    return bytes(holder.public_key().public_bytes(forms.Encoding.DER, forms.PublicFormat.SubjectPublicKeyInfo))


def _file_error(option: str, path: str, reason: str) -> ValidationError:
    return ValidationError(f"{option}: {path!r} {reason}.")


def _read(option: str, path: str) -> bytes:
    try:
        with open(os.path.expanduser(path), "rb") as stream:
            return stream.read()
    except OSError as error:
        raise _file_error(option, path, f"cannot be read: {error.strerror}") from None
