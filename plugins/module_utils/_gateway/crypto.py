# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Optional import of the Python package cryptography."""

from __future__ import annotations

from .model import GatewayError

_missing: ImportError | None = None
try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, utils
    from cryptography.x509 import oid
except ImportError as error:
    _missing = error

__all__ = ["ec", "hashes", "oid", "require", "serialization", "utils", "x509"]


def require() -> None:
    """Raise :class:`GatewayError` if the package is missing; the other names of this module are undefined then."""
    if _missing is not None:
        raise GatewayError(
            f"the Python package cryptography is missing on this host ({_missing}):"
            " run backendai.cluster.provision_gateways on it."
        )
