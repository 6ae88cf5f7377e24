# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A text that only one reader can open: ephemeral X25519, HKDF with SHA-256, ChaCha20-Poly1305.

Results of modules are printed with ``-vvv``, and callbacks log them. So a token comes back from its gateway sealed for
the action that asked for it, which has made a key for this one answer.
"""

from __future__ import annotations

import base64
from typing import Any

_PURPOSE = b"backendai.cluster sealed text"
_NONCE = bytes(12)
"""Each key is used once."""

_KEY_BYTES = 32


class Reader:
    """Opens what is sealed for :attr:`address`. Needs the Python package cryptography: ImportError without it."""

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._key = X25519PrivateKey.generate()
        self.address = base64.b64encode(_public_bytes(self._key)).decode()

    def open(self, sealed: str) -> str:
        """Return the text; raises :class:`ValueError` for what was sealed for somebody else, or changed."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        data = base64.b64decode(sealed)
        sender = data[:_KEY_BYTES]
        shared = self._key.exchange(X25519PublicKey.from_public_bytes(sender))
        try:
            text = _cipher(shared, sender, _public_bytes(self._key)).decrypt(_NONCE, data[_KEY_BYTES:], None)
        except InvalidTag:
            raise ValueError("the text was not sealed for this reader") from None
        return str(text.decode())


def seal(address: str, text: str) -> str:
    """Return a text for the one reader at ``address``; raises :class:`ValueError` where that is none."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    reader = base64.b64decode(address, validate=True)
    key = X25519PrivateKey.generate()
    shared = key.exchange(X25519PublicKey.from_public_bytes(reader))
    sender = _public_bytes(key)
    return base64.b64encode(sender + _cipher(shared, sender, reader).encrypt(_NONCE, text.encode(), None)).decode()


def _cipher(shared: bytes, sender: bytes, reader: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return ChaCha20Poly1305(HKDF(SHA256(), 32, sender + reader, _PURPOSE).derive(shared))


def _public_bytes(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization as forms

    return bytes(key.public_key().public_bytes(forms.Encoding.Raw, forms.PublicFormat.Raw))
