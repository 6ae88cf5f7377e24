"""Public keys of users."""

from __future__ import annotations

import sys

import pytest
from ansible.errors import AnsibleActionFail
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import ValidationError
from ansible_collections.backendai.cluster.plugins.plugin_utils.public_keys import check_public_keys

ED25519 = Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
ECDSA = generate_private_key(SECP256R1()).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


@pytest.mark.parametrize(
    "keys",
    [[], [ED25519], [f"{ED25519} alice@laptop"], [ED25519, ECDSA]],
    ids=["none", "one", "with a comment", "two kinds"],
)
def test_public_keys_of_openssh_are_taken(keys: list[str]) -> None:
    check_public_keys(keys)


@pytest.mark.parametrize(
    "key",
    [
        "x",
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        ED25519.replace("ssh-ed25519", "ssh-rsa"),
        f'command="rm -rf /" {ED25519}',
        f"no-pty {ED25519}",
    ],
    ids=["no key", "no body", "cut off", "another kind", "with a command", "with an option"],
)
def test_anything_else_is_refused_with_its_place(key: str) -> None:
    with pytest.raises(ValidationError) as refused:
        check_public_keys([ED25519, key])
    assert str(refused.value) == (
        f"session_authorized_keys[1]: {key[:40]!r} is not an OpenSSH public key (ssh-ed25519 AAAA…)."
    )


def test_a_missing_package_is_reported_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(AnsibleActionFail) as refused:
        check_public_keys([ED25519])
    assert str(refused.value) == (
        "session_authorized_keys needs the Python package cryptography here (import of cryptography.exceptions halted;"
        " None in sys.modules)."
    )


def test_without_keys_no_package_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    check_public_keys([])
