"""Self-signed certificates are kept until renewal, and given ones replace them."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from ansible_collections.backendai.cluster.plugins.module_utils._gateway import crypto
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.certificate import (
    install_certificate,
    make_self_signed,
    parse_certificate,
)
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.model import GatewayError

NAMES = ["door.example.org", "*.apps.example.org", "192.0.2.7", "2001:db8::1"]
NOW = time.time()
DAY = 86400.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "certificate.pem"


def parts(pem: str) -> tuple[str, str]:
    """Return the certificate and the key in one file."""
    place = pem.index("-----BEGIN PRIVATE")
    return pem[:place], pem[place:]


def test_a_self_signed_certificate_has_names_and_issuer() -> None:
    facts = parse_certificate(make_self_signed(NAMES, NOW))
    assert facts is not None
    assert (sorted(facts.names), facts.self_signed) == (sorted(NAMES), True)
    assert 396 * DAY < facts.expires_at - NOW < 397 * DAY


def test_a_long_name_is_valid() -> None:
    long = f"{'a' * 60}.{'b' * 60}.example.org"
    facts = parse_certificate(make_self_signed([long], NOW))
    assert facts is not None
    assert facts.names == [long]


def test_a_certificate_is_created_once_and_only_for_root(path: Path) -> None:
    would, _facts = install_certificate(path, NAMES, None, NOW, check_mode=True)
    assert ([change.before for change in would], path.exists()) == ([None], False)
    (change,), facts = install_certificate(path, NAMES, None, NOW, check_mode=False)
    assert str(change.after).startswith("for door.example.org, *.apps.example.org, 192.0.2.7, 2001:db8::1 until ")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert facts.fingerprint == x509.load_pem_x509_certificate(path.read_bytes()).fingerprint(SHA256()).hex()
    assert install_certificate(path, NAMES, None, NOW, check_mode=False) == ([], facts)


@pytest.mark.parametrize(
    ("names", "now", "anew"),
    [
        (list(reversed(NAMES)), NOW, False),
        (NAMES[:1], NOW, True),
        (NAMES, NOW + 366 * DAY, False),
        (NAMES, NOW + 367 * DAY, True),
    ],
    ids=["another order", "other names", "good for a while", "ends soon"],
)
def test_a_self_signed_certificate_is_renewed_when_required(
    path: Path, names: list[str], now: float, anew: bool
) -> None:
    _changes, first = install_certificate(path, NAMES, None, NOW, check_mode=False)
    changes, facts = install_certificate(path, names, None, now, check_mode=False)
    assert (bool(changes), facts != first, sorted(facts.names)) == (anew, anew, sorted(names))


def test_an_invalid_certificate_is_replaced(path: Path) -> None:
    path.write_text("x")
    (change,), _facts = install_certificate(path, NAMES, None, NOW, check_mode=False)
    assert change.before == "(no certificate)"


def test_a_given_certificate_replaces_the_self_signed_one(path: Path) -> None:
    pem = make_self_signed(["given.example.org"], NOW)
    install_certificate(path, NAMES, None, NOW, check_mode=False)
    changes, facts = install_certificate(path, NAMES, parts(pem), NOW, check_mode=False)
    assert len(changes) == 1
    assert "PRIVATE" not in f"{changes}{facts}"
    assert path.read_text() == pem
    assert install_certificate(path, NAMES, parts(pem), NOW, check_mode=False) == ([], facts)
    (back,), _facts = install_certificate(path, NAMES, None, NOW, check_mode=False)
    assert str(back.before).startswith("for given.example.org until")


def test_too_open_file_permissions_are_corrected(path: Path) -> None:
    install_certificate(path, NAMES, None, NOW, check_mode=False)
    path.chmod(0o644)
    (change,), _facts = install_certificate(path, NAMES, None, NOW, check_mode=False)
    assert change.subject == f"certificate in {path}"
    assert (change.before, change.after) == ("mode 0644", "mode 0600")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_invalid_given_certificate_is_an_error(path: Path) -> None:
    with pytest.raises(GatewayError, match="holds no certificate in PEM form"):
        install_certificate(path, NAMES, ("x", "y"), NOW, check_mode=False)


def test_a_host_without_cryptography_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crypto, "_missing", ImportError("No module named 'cryptography'"))
    with pytest.raises(GatewayError, match=r"^the Python package cryptography is missing on this host \(No module"):
        install_certificate(path, NAMES, None, NOW, check_mode=False)
