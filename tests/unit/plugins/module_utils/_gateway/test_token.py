"""Tokens are signed according to RFC 7515 and 7518."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from ansible_collections.backendai.cluster.plugins.module_utils._gateway import crypto
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.model import GatewayError
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.token import (
    build_claims,
    make_token_key,
    public_key,
    sign,
)


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def verify(token: str, public: str) -> dict[str, Any]:
    """Return the claims of a token; raise :class:`InvalidSignature` for another key."""
    head, body, signature = token.split(".")
    assert json.loads(decoded(head)) == {"alg": "ES256", "typ": "JWT"}
    numbers = decoded(signature)
    assert len(numbers) == 64
    r, s = int.from_bytes(numbers[:32], "big"), int.from_bytes(numbers[32:], "big")
    key = load_pem_public_key(public.encode())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)
    key.verify(utils.encode_dss_signature(r, s), f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256()))
    return dict(json.loads(decoded(body)))


def test_a_token_is_signed_with_the_key_of_the_gateway(tmp_path: Path) -> None:
    make_token_key(tmp_path / "key")
    make_token_key(tmp_path / "other")
    claims = build_claims("id-1", "train-llm", 1000, 60)
    # Numbers of a signature can have leading zeros, which must be kept.
    for _time in range(20):
        assert verify(sign(tmp_path / "key", claims), public_key(tmp_path / "key")) == {
            "iss": "backendai-gateway",
            "sub": "id-1",
            "session": "train-llm",
            "iat": 1000,
            "exp": 1060,
        }
    with pytest.raises(InvalidSignature):
        verify(sign(tmp_path / "other", claims), public_key(tmp_path / "key"))


def test_only_root_can_read_the_key(tmp_path: Path) -> None:
    make_token_key(tmp_path / "key")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert "PRIVATE" not in public_key(tmp_path / "key")
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_missing_or_damaged_key_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GatewayError, match=r"key cannot be read \(No such file or directory\): run backendai\.cluster"):
        sign(tmp_path / "key", {})
    (tmp_path / "key").write_text("x")
    with pytest.raises(GatewayError, match=r"key is damaged: remove it, and run backendai\.cluster.provision_gateways"):
        public_key(tmp_path / "key")


def test_a_host_without_cryptography_cannot_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crypto, "_missing", ImportError("No module named 'cryptography'"))
    for act in (make_token_key, public_key):
        with pytest.raises(GatewayError, match=r"^the Python package cryptography is missing on this host"):
            act(tmp_path / "key")
