"""Public keys of users: what OpenSSH accepts is taken, and nothing that it would ignore."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import ValidationError
from ansible_collections.backendai.cluster.plugins.plugin_utils.public_keys import KEY_TYPES, check_public_keys
from backendai_manager.user import keys

# Certificates are for files of authorities, and DSA is switched off since OpenSSH 7.
NOT_TAKEN = ("ssh-dss",)


def field(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def line(kind: str, *fields: bytes) -> str:
    """Return a public key of constants."""
    return f"{kind} {base64.b64encode(b''.join(map(field, (kind.encode(), *fields)))).decode()}"


# The points of these keys are the curves' own.
P256 = bytes.fromhex(
    "046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"
    "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"
)
SECURITY_KEYS = [
    line("sk-ssh-ed25519@openssh.com", bytes(range(32)), b"ssh:"),
    line("sk-ecdsa-sha2-nistp256@openssh.com", b"nistp256", P256, b"ssh:"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Keys of OpenSSH of each kind that needs no token, and a certificate."""
    folder = tmp_path_factory.mktemp("keys")
    kinds = {"ed25519": "256", "rsa": "2048", "ecdsa256": "256", "ecdsa384": "384", "ecdsa521": "521"}
    for name, bits in kinds.items():
        kind = name.rstrip("0123456789") if name.startswith("ecdsa") else name
        make(folder / name, "-t", kind, "-b", bits)
    ca, key = str(folder / "rsa"), str(folder / "ed25519.pub")
    subprocess.run(["ssh-keygen", "-q", "-s", ca, "-I", "id", "-n", "work", key], check=True)
    return {path.stem: path.read_text().strip() for path in folder.glob("*.pub")}


def make(path: Path, *options: str) -> None:
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-C", "alice@laptop", "-f", path, *options], check=True)


def test_the_types_are_those_of_openssh_in_one_list_on_both_sides() -> None:
    known = subprocess.run(["ssh", "-Q", "key-plain"], capture_output=True, text=True, check=True).stdout.split()
    assert set(known) - {*NOT_TAKEN} == set(KEY_TYPES) == set(keys.KEY_TYPES)


def test_keys_of_every_type_of_openssh_are_taken_on_both_sides(made: dict[str, str], tmp_path: Path) -> None:
    given = [text for name, text in made.items() if not name.endswith("-cert")] + SECURITY_KEYS
    assert {text.split()[0] for text in given} == set(KEY_TYPES)
    check_public_keys([*given, f"  {given[0]}\n"])
    named = tmp_path / "mine"
    named.write_text("# mine\n\n" + "".join(f"{text}\n" for text in given))
    assert keys.public_keys(tmp_path, [str(named)]) == [" ".join(text.split()[:2]) for text in given]
    for text in given:
        assert keys.public_keys(tmp_path, [str(named)])
        shown = subprocess.run(["ssh-keygen", "-l", "-f", "-"], input=text, capture_output=True, text=True, check=False)
        assert shown.returncode == 0, (text, shown.stderr)


ED25519 = line("ssh-ed25519", bytes(range(32)))
NO_KEY = f"is not an OpenSSH public key ({', '.join(KEY_TYPES)})"
CUT_OFF = "is not a whole key of type ssh-ed25519: copy the file with .pub at its end again"
OPTIONS = "has options before the key: give the key alone"


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("x", NO_KEY),
        ("", NO_KEY),
        (f"{ED25519}\n{ED25519}", NO_KEY),
        ("ssh-dss AAAAB3NzaC1kc3MAAACB", NO_KEY),
        ("ssh-ed25519", CUT_OFF),
        ("ssh-ed25519 AAAA", CUT_OFF),
        ("ssh-ed25519 a!", CUT_OFF),
        (ED25519[:-8], CUT_OFF),
        (ED25519.replace("ssh-ed25519", "ssh-rsa"), "is not of type ssh-rsa"),
        (line("ssh-ed25519", b"a", b"b"), "is not of type ssh-ed25519"),
        (f'command="rm -rf /" {ED25519}', OPTIONS),
        (f"no-pty {ED25519}", OPTIONS),
    ],
)
def test_anything_else_is_refused_with_its_place_and_the_reason(key: str, problem: str) -> None:
    with pytest.raises(ValidationError) as refused:
        check_public_keys([ED25519, key])
    assert str(refused.value) == f"session_authorized_keys[1]: {key[:40]!r} {problem}."


def test_a_certificate_is_refused_with_the_key_to_give(made: dict[str, str], tmp_path: Path) -> None:
    certificate = made["ed25519-cert"]
    with pytest.raises(ValidationError) as refused:
        check_public_keys([certificate])
    assert str(refused.value).endswith(" is a certificate: give the key that it is for (ssh-ed25519 …).")
    (tmp_path / "id-cert.pub").write_text(certificate)
    assert keys.public_keys(tmp_path) == []
    with pytest.raises(keys.RefusedError, match=r"is a certificate; name the public key that it is for\.$"):
        keys.public_keys(tmp_path, [str(tmp_path / "id-cert.pub")])


@pytest.mark.parametrize("text", ["", "# nothing\n", f"{ED25519}\nno-pty {ED25519}\n", f"{ED25519}\nssh-dss AAAA\n"])
def test_a_file_that_is_named_has_nothing_but_keys(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine").write_text(text)
    with pytest.raises(keys.RefusedError, match="has no SSH public key, or something else beside keys") as refused:
        keys.public_keys(tmp_path, [str(tmp_path / "mine")])
    assert "sk-ssh-ed25519@openssh.com" in str(refused.value)
