"""Sign a token as a gateway does: `sign_token.py KEY`; with an empty KEY, a new random key is used.

Reads the header and the claims from standard input, as JSON.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.serialization import load_pem_private_key


def encoded(part: bytes) -> bytes:
    return base64.urlsafe_b64encode(part).rstrip(b"=")


key = (
    load_pem_private_key(Path(sys.argv[1]).read_bytes(), None)
    if sys.argv[1]
    else ec.generate_private_key(ec.SECP256R1())
)
assert isinstance(key, ec.EllipticCurvePrivateKey)
text = b".".join(encoded(json.dumps(part).encode()) for part in json.load(sys.stdin))
r, s = utils.decode_dss_signature(key.sign(text, ec.ECDSA(hashes.SHA256())))
print((text + b"." + encoded(r.to_bytes(32, "big") + s.to_bytes(32, "big"))).decode())
