"""The key pair of an agent's WireGuard device, with a faked tool."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._wireguard.key import (
    make_wireguard_key,
    read_public_key,
)

WG = """#!/bin/sh
case "$1" in
  genkey) echo PRIVATE ;;
  pubkey) read key; echo "public of $key" ;;
esac
"""


@pytest.fixture
def wg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fake of the tool, the only program on the PATH."""
    tool = tmp_path / "bin" / "wg"
    tool.parent.mkdir()
    tool.write_text(WG)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    return tool


@pytest.mark.usefixtures("wg")
def test_pair_is_readable_by_root_alone(tmp_path: Path) -> None:
    folder = tmp_path / "wireguard"
    assert make_wireguard_key(folder) == "public of PRIVATE"
    assert read_public_key(folder) == "public of PRIVATE"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    assert modes == {"wireguard": 0o700, "private": 0o600, "public": 0o600}


def test_missing_pair_is_empty(tmp_path: Path) -> None:
    assert read_public_key(tmp_path / "wireguard") == ""


@pytest.mark.usefixtures("wg")
def test_unfinished_pair_is_recreated(tmp_path: Path) -> None:
    folder = tmp_path / "wireguard"
    folder.mkdir()
    (folder / "private").write_text("the half of a pair, and longer than the next one")
    assert read_public_key(folder) == ""
    assert make_wireguard_key(folder) == "public of PRIVATE"
    assert (folder / "private").read_text() == "PRIVATE\n"


def test_failed_tool_leaves_no_pair(tmp_path: Path, wg: Path) -> None:
    wg.write_text("#!/bin/sh\necho no entropy >&2\nexit 1\n")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        make_wireguard_key(tmp_path / "wireguard")
    assert failed.value.stderr == "no entropy\n"
    assert read_public_key(tmp_path / "wireguard") == ""
