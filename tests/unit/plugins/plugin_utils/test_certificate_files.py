"""The operator's certificate is validated on the control node."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as forms

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.certificate import make_self_signed
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import ValidationError
from ansible_collections.backendai.cluster.plugins.plugin_utils.certificate_files import read_pair
from tests.unit.plugins.module_utils._gateway.test_certificate import parts

NOW = time.time()
CERTIFICATE, KEY = parts(make_self_signed(["given.example.org"], NOW))


def refusal(folder: Path, certificate: str, key: str) -> str:
    """Return the error for a pair of these contents, without the path of the file."""
    paths = folder / "certificate.pem", folder / "key.pem"
    for path, content in zip(paths, (certificate, key), strict=True):
        path.write_text(content)
    with pytest.raises(ValidationError) as refused:
        read_pair(*map(str, paths))
    return str(refused.value).replace(f"'{folder}/certificate.pem' ", "").replace(f"'{folder}/key.pem' ", "")


def test_a_pair_that_fits_is_returned_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "certificate.pem").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    assert read_pair(str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem")) == (CERTIFICATE, KEY)
    assert read_pair("", "") == ("", "")


@pytest.mark.parametrize(
    ("certificate", "key", "sentence"),
    [
        ("x", KEY, "gateway_certificate: holds no certificate in PEM form."),
        (CERTIFICATE, "x", "gateway_certificate_key: holds no private key in PEM form."),
        (CERTIFICATE, parts(make_self_signed(["x"], NOW))[1], "gateway_certificate_key: does not fit the certificate."),
        (*parts(make_self_signed(["x"], 0.0)), "gateway_certificate: expired on 1971-02-01."),
        (*parts(make_self_signed(["x"], 4e9)), "gateway_certificate: is not valid before 2096-10-02."),
    ],
    ids=["no certificate", "no key", "another key", "expired", "of the future"],
)
def test_unusable_files_are_reported(tmp_path: Path, certificate: str, key: str, sentence: str) -> None:
    assert refusal(tmp_path, certificate, key) == sentence


def test_a_key_with_a_passphrase_is_refused(tmp_path: Path) -> None:
    key = forms.load_pem_private_key(KEY.encode(), None)
    closed = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.BestAvailableEncryption(b"x"))
    sentence = refusal(tmp_path, CERTIFICATE, closed.decode())
    assert sentence == "gateway_certificate_key: is encrypted with a passphrase, which HAProxy cannot prompt for."
