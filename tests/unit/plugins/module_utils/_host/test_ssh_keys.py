"""Tests for key pairs of containers, with fake key tools; integration tests use the real ones."""

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
echo "ssh-ed25519 AAAA-USER root@agent1" > "$1.pub"
"""
DROPBEARKEY = """#!/bin/sh
if [ "$1" = -t ]; then echo private > "$4"; fi
echo "Public key portion is:"
echo "ssh-ed25519 AAAA-HOST root@agent1"
echo "Fingerprint: SHA256:x"
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is the whole PATH, with fake key tools."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, script in {"ssh-keygen": SSH_KEYGEN, "dropbearkey": DROPBEARKEY}.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.mark.usefixtures("tools")
def test_public_keys_are_returned_without_the_host_name(tmp_path: Path) -> None:
    assert ensure_keys(tmp_path / "ssh") == PublicKeys("ssh-ed25519 AAAA-USER", "ssh-ed25519 AAAA-HOST")
    assert stat.S_IMODE((tmp_path / "ssh").stat().st_mode) == 0o700


@pytest.mark.usefixtures("tools")
def test_existing_keys_are_kept(tmp_path: Path) -> None:
    first = ensure_keys(tmp_path / "ssh")
    (tmp_path / "ssh" / "id_ed25519").write_text("mine")
    (tmp_path / "ssh" / "host_key").write_text("mine too")
    assert ensure_keys(tmp_path / "ssh") == first
    assert (tmp_path / "ssh" / "id_ed25519").read_text() == "mine"
    assert (tmp_path / "ssh" / "host_key").read_text() == "mine too"


@pytest.mark.usefixtures("tools")
def test_incomplete_key_pair_is_generated_again(tmp_path: Path) -> None:
    (tmp_path / "ssh").mkdir()
    (tmp_path / "ssh" / "id_ed25519").write_text("the half of a pair")
    assert ensure_keys(tmp_path / "ssh").user == "ssh-ed25519 AAAA-USER"
    assert (tmp_path / "ssh" / "id_ed25519").read_text() == "private\n"


def test_failing_key_tool_is_an_error_with_its_output(tools: Path, tmp_path: Path) -> None:
    (tools / "dropbearkey").write_text("#!/bin/sh\necho no entropy >&2\nexit 1\n")
    with pytest.raises(subprocess.CalledProcessError) as raised:
        ensure_keys(tmp_path / "ssh")
    assert (raised.value.cmd[0], raised.value.stderr) == ("dropbearkey", "no entropy\n")


def test_missing_key_tool_is_an_error_with_its_name(tools: Path, tmp_path: Path) -> None:
    (tools / "ssh-keygen").unlink()
    with pytest.raises(FileNotFoundError, match="ssh-keygen"):
        ensure_keys(tmp_path / "ssh")
