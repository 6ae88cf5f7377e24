"""Certificates that are given are checked, and those that a gateway makes are kept for as long as they are good."""

from __future__ import annotations

import stat
import sys
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.hashes import SHA256

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.certificate import (
    CertificateError,
    check_pair,
    facts_of,
    make,
    still_good,
)
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.errors import GatewayFault
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.installed import install

NAMES = ["door.example.org", "*.apps.example.org", "192.0.2.7", "2001:db8::1"]
NOW = time.time()
DAY = 86400.0


def parts(pem: bytes) -> tuple[bytes, bytes]:
    """Return the certificate and the key that one file holds."""
    place = pem.index(b"-----BEGIN PRIVATE")
    return pem[:place], pem[place:]


def test_what_is_made_is_for_these_names_and_its_key_fits() -> None:
    facts = check_pair(*parts(make(NAMES, NOW)), NOW)
    assert (sorted(facts.names), facts.own) == (sorted(NAMES), True)
    assert 396 * DAY < facts.expires_at - NOW < 397 * DAY


def test_a_long_name_is_no_trouble() -> None:
    long = f"{'a' * 60}.{'b' * 60}.example.org"
    assert check_pair(*parts(make([long], NOW)), NOW).names == (long,)


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        ((b"x", b"x"), "certificate holds no certificate in PEM form"),
        ((parts(make(NAMES, NOW))[0], b"x"), "key holds no private key in PEM form"),
        ((parts(make(NAMES, NOW))[0], parts(make(NAMES, NOW))[1]), "key does not fit the certificate"),
        (parts(make(NAMES, 0.0)), "certificate has expired on 1971-02-01"),
        (parts(make(NAMES, 4e9)), "certificate is not valid before 2096-10-02"),
    ],
    ids=["no certificate", "no key", "another key", "expired", "of the future"],
)
def test_what_cannot_be_used_is_told(pair: tuple[bytes, bytes], reason: str) -> None:
    with pytest.raises(CertificateError, match=f"^{reason}$"):
        check_pair(*pair, NOW)


def test_a_key_with_a_passphrase_is_told() -> None:
    certificate, plain = parts(make(NAMES, NOW))
    key = forms.load_pem_private_key(plain, None)
    closed = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.BestAvailableEncryption(b"x"))
    with pytest.raises(CertificateError, match=r"^key is encrypted with a passphrase"):
        check_pair(certificate, closed, NOW)


def test_a_certificate_is_good_until_the_names_change_or_it_ends_soon() -> None:
    facts = facts_of(make(NAMES, NOW))
    assert still_good(facts, list(reversed(NAMES)), NOW)
    assert not still_good(facts, NAMES[:1], NOW)
    assert still_good(facts, NAMES, NOW + 366 * DAY)
    assert not still_good(facts, NAMES, NOW + 367 * DAY)
    assert not still_good(facts_of(b"x"), NAMES, NOW)


def test_it_is_made_once_for_root_alone(tmp_path: Path) -> None:
    path = tmp_path / "certificate.pem"
    would, shown = install(path, NAMES, None, NOW, dry=True)
    assert would is not None
    assert (shown["fingerprint"], path.exists()) == (None, False)
    change, shown = install(path, NAMES, None, NOW, dry=False)
    assert change is not None
    assert str(change.after).startswith("for door.example.org, *.apps.example.org, 192.0.2.7, 2001:db8::1 until ")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    fingerprint = x509.load_pem_x509_certificate(path.read_bytes()).fingerprint(SHA256()).hex()
    assert shown["fingerprint"] == fingerprint
    assert install(path, NAMES, None, NOW, dry=False) == (None, shown)
    again, other = install(path, NAMES[:1], None, NOW, dry=False)
    assert again is not None
    assert (other["names"], other["own"]) == (NAMES[:1], True)


def test_a_given_one_takes_its_place_and_gives_it_back(tmp_path: Path) -> None:
    path, pem = tmp_path / "certificate.pem", make(["given.example.org"], NOW)
    certificate, key = (part.decode() for part in parts(pem))
    install(path, NAMES, None, NOW, dry=False)
    change, shown = install(path, NAMES, (certificate, key), NOW, dry=False)
    assert change is not None
    assert "PRIVATE" not in f"{change}{shown}"
    assert path.read_bytes() == pem
    assert install(path, NAMES, (certificate, key), NOW, dry=False)[0] is None
    back, _shown = install(path, NAMES, None, NOW, dry=False)
    assert back is not None
    assert str(back.before).startswith("for given.example.org until")


def test_a_mode_that_is_too_open_is_put_right(tmp_path: Path) -> None:
    path = tmp_path / "certificate.pem"
    install(path, NAMES, None, NOW, dry=False)
    path.chmod(0o644)
    change, _shown = install(path, NAMES, None, NOW, dry=False)
    assert change is not None
    assert (change.before, change.after) == ("mode 0644", "mode 0600")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_given_text_that_is_no_certificate_is_told(tmp_path: Path) -> None:
    with pytest.raises(GatewayFault, match="holds no certificate in PEM form"):
        install(tmp_path / "certificate.pem", NAMES, ("x", "y"), NOW, dry=False)


def test_a_host_without_cryptography_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(GatewayFault, match=r"^the Python package cryptography is missing on this host"):
        install(tmp_path / "certificate.pem", NAMES, None, NOW, dry=False)
