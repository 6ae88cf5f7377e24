"""Tests for key pairs of containers, with a fake kit; those of the kit use the real one."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.ssh_keys import ensure_keys
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import PublicKeys

SSH_KEYGEN = """#!/bin/sh
[ "$1 $2 $3 $4" = "--inhibit-cache --library-path {kit}/lib {kit}/libexec/ssh-keygen" ] || exit 8
[ "$OPENSSL_CONF" = /dev/null ] || exit 7
while [ $# -gt 1 ]; do shift; done
[ ! -e "$1" ] || exit 9
echo private > "$1"
echo "ssh-ed25519 AAAA-${1##*/} root@agent1" > "$1.pub"
"""
KEYS = PublicKeys("ssh-ed25519 AAAA-id_ed25519", "ssh-ed25519 AAAA-ssh_host_ed25519_key")


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the loader of a fake ssh-keygen in a kit; there is no other program."""
    path = tmp_path / "kit/loader/ssh-keygen"
    path.parent.mkdir(parents=True)
    path.write_text(script(tmp_path))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return path


def script(folder: Path) -> str:
    return SSH_KEYGEN.replace("{kit}", f"{folder}/kit")


@pytest.mark.usefixtures("tool")
def test_public_keys_are_returned_without_the_host_name(tmp_path: Path) -> None:
    (tmp_path / "ssh").mkdir()
    assert ensure_keys(tmp_path / "ssh", f"{tmp_path}/kit") == KEYS


def test_the_group_of_a_containers_user_may_read_its_keys(tool: Path, tmp_path: Path) -> None:
    tool.write_text(script(tmp_path) + '/bin/chmod 600 "$1" "$1.pub"\n')
    (tmp_path / "ssh").mkdir()
    for _run in range(2):
        ensure_keys(tmp_path / "ssh", f"{tmp_path}/kit")
        for path in (tmp_path / "ssh").iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o640
            path.chmod(0o600)  # as a run leaves it that was killed


def test_existing_keys_are_kept(tool: Path, tmp_path: Path) -> None:
    (tmp_path / "ssh").mkdir()
    ensure_keys(tmp_path / "ssh", f"{tmp_path}/kit")
    tool.unlink()
    assert ensure_keys(tmp_path / "ssh", f"{tmp_path}/kit") == KEYS


@pytest.mark.parametrize("name", ["id_ed25519", "ssh_host_ed25519_key"])
@pytest.mark.usefixtures("tool")
def test_incomplete_key_pair_is_generated_again(name: str, tmp_path: Path) -> None:
    private = tmp_path / "ssh" / name
    private.parent.mkdir()
    private.write_text("the half of a pair")
    assert ensure_keys(tmp_path / "ssh", f"{tmp_path}/kit") == KEYS
    assert private.read_text() == "private\n"


def test_failing_key_tool_is_an_error_with_its_output(tool: Path, tmp_path: Path) -> None:
    tool.write_text("#!/bin/sh\necho no entropy >&2\nexit 1\n")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        ensure_keys(tmp_path / "ssh", f"{tmp_path}/kit")
    assert (raised.value.cmd[0], raised.value.stderr) == (str(tool), "no entropy\n")


def test_missing_key_tool_is_an_error_with_its_name(tool: Path, tmp_path: Path) -> None:
    tool.unlink()
    with pytest.raises(FileNotFoundError, match="ssh-keygen"):
        ensure_keys(tmp_path / "ssh", f"{tmp_path}/kit")
