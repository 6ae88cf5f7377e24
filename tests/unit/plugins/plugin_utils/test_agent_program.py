"""The program for agents: one file that Python runs, without Ansible."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from ansible_collections.backendai.cluster.plugins.plugin_utils.agent_program import pack


def test_the_same_sources_give_the_same_bytes() -> None:
    first = pack()
    pack.cache_clear()
    assert pack() == first


def test_the_program_runs_without_ansible(tmp_path: Path) -> None:
    program = tmp_path / "restore.pyz"
    program.write_bytes(pack())
    # Neither site-packages nor the checkout can be seen: only what Python brings.
    line = [sys.executable, "-I", "-S", str(program), "--state-path", str(tmp_path), "--docker-host", "unix:///x"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"<3>{tmp_path} is not ready (No such file or directory):"
        " run backendai.cluster.provision_agents on this host.\n"
    )


def test_what_is_packed_is_the_code_of_the_modules(tmp_path: Path) -> None:
    program = tmp_path / "restore.pyz"
    program.write_bytes(pack())
    names = zipfile.ZipFile(program).namelist()
    package = "ansible_collections/backendai/cluster/plugins/module_utils"
    assert f"{package}/_session/reconcile.py" in names
    assert f"{package}/_model/plan.py" in names
    assert len(names) == len(set(names))
    assert not [name for name in names if "/_gateway/" in name or "/_exposure/" in name]
