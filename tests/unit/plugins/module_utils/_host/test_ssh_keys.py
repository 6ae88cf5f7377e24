"""Tests for key pairs of containers, with a fake ssh-keygen; integration tests use the real one."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.ssh_keys import ensure_keys
from ansible_collections.backendai.cluster.plugins.module_utils._model.held_session import PublicKeys

SSH_KEYGEN = """#!/bin/sh
while [ $# -gt 1 ]; do shift; done
[ ! -e "$1" ] || exit 9
echo private > "$1"
echo "ssh-ed25519 AAAA-${1##*/} root@agent1" > "$1.pub"
"""
KEYS = PublicKeys("ssh-ed25519 AAAA-id_ed25519", "ssh-ed25519 AAAA-ssh_host_ed25519_key")


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fake ssh-keygen, in a folder that is the whole PATH."""
    path = tmp_path / "bin" / "ssh-keygen"
    path.parent.mkdir()
    path.write_text(SSH_KEYGEN)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent))
    return path


@pytest.mark.usefixtures("tool")
def test_public_keys_are_returned_without_the_host_name(tmp_path: Path) -> None:
    (tmp_path / "ssh").mkdir()
    assert ensure_keys(tmp_path / "ssh") == KEYS


def test_the_group_of_a_containers_user_may_read_its_keys(tool: Path, tmp_path: Path) -> None:
    tool.write_text(SSH_KEYGEN + '/bin/chmod 600 "$1" "$1.pub"\n')
    (tmp_path / "ssh").mkdir()
    for _run in range(2):
        ensure_keys(tmp_path / "ssh")
        for path in (tmp_path / "ssh").iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o640
            path.chmod(0o600)  # as a run leaves it that was killed


def test_existing_keys_are_kept(tool: Path, tmp_path: Path) -> None:
    (tmp_path / "ssh").mkdir()
    ensure_keys(tmp_path / "ssh")
    tool.unlink()
    assert ensure_keys(tmp_path / "ssh") == KEYS


@pytest.mark.parametrize("name", ["id_ed25519", "ssh_host_ed25519_key"])
@pytest.mark.usefixtures("tool")
def test_incomplete_key_pair_is_generated_again(name: str, tmp_path: Path) -> None:
    private = tmp_path / "ssh" / name
    private.parent.mkdir()
    private.write_text("the half of a pair")
    assert ensure_keys(tmp_path / "ssh") == KEYS
    assert private.read_text() == "private\n"


def test_failing_key_tool_is_an_error_with_its_output(tool: Path, tmp_path: Path) -> None:
    tool.write_text("#!/bin/sh\necho no entropy >&2\nexit 1\n")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        ensure_keys(tmp_path / "ssh")
    assert (raised.value.cmd[0], raised.value.stderr) == ("ssh-keygen", "no entropy\n")


def test_missing_key_tool_is_an_error_with_its_name(tool: Path, tmp_path: Path) -> None:
    tool.unlink()
    with pytest.raises(FileNotFoundError, match="ssh-keygen"):
        ensure_keys(tmp_path / "ssh")
