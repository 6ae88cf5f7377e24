# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A certificate and its key that the operator brings, in files on the control node."""

from __future__ import annotations

import os
import time

from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.certificate import (
    CertificateError,
    check_pair,
)
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import SpecError

CERTIFICATE, KEY = "gateway_certificate", "gateway_certificate_key"


def read_pair(certificate: str, key: str) -> tuple[str, str]:
    """Return the content of both files, checked; two empty texts where none is given.

    Raises :class:`SpecError` with one sentence for what is wrong with them.
    """
    if not certificate:
        return "", ""
    found, private = _read(CERTIFICATE, certificate), _read(KEY, key)
    try:
        check_pair(found, private, time.time())
    except ImportError as error:
        raise AnsibleActionFail(f"{CERTIFICATE} needs the Python package cryptography here ({error}).") from None
    except CertificateError as error:
        part, _space, reason = str(error).partition(" ")
        option, path = (KEY, key) if part == "key" else (CERTIFICATE, certificate)
        raise SpecError(f"{option}: {path!r} {reason}.") from None
    return found.decode(), private.decode()


def _read(option: str, path: str) -> bytes:
    try:
        with open(os.path.expanduser(path), "rb") as stream:
            return stream.read()
    except OSError as error:
        raise SpecError(f"{option}: {path!r} cannot be read: {error.strerror}.") from None
