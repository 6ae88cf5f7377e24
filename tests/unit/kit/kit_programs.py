"""The kit as an agent has it that gets an archive of ``build_kit``, made of packages of this machine's distribution.

The archive is kept below ``.cache``.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import yaml

from ansible_collections.backendai.cluster.plugins.module_utils._host import kit
from ansible_collections.backendai.cluster.plugins.module_utils._host.kit_archive import build_archive, read_archive
from tests.unit.builders import REPOSITORY

SCRIPTS = REPOSITORY / "roles/agent/files/kit"
_CACHE = REPOSITORY / ".cache/kit"


def scripts() -> dict[str, str]:
    """Return the scripts that the role gives to the kit, by path."""
    tasks = yaml.safe_load((REPOSITORY / "roles/agent/tasks/main.yml").read_text())
    (task,) = [
        task for block in tasks for task in block.get("block", [block]) if "backendai.cluster.runtime_kit" in task
    ]
    sources = task["backendai.cluster.runtime_kit"]["scripts"]
    return {path: (SCRIPTS / value.split("'kit/")[1].split("'")[0]).read_text() for path, value in sources.items()}


def install(root: Path) -> Path:
    """Build the kit and install it below a folder; return its own folder."""
    _architecture, programs = read_archive(str(archive()))
    built = kit.build_kit(scripts(), programs)
    kit.install_kit(built, str(root), kit.kit_changes(built, str(root)))
    return root / built.version


def archive() -> Path:
    """Return the archive, which the first test that needs it makes."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    made = _CACHE / "kit.tar.gz"
    lock = os.open(_CACHE, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            with tempfile.TemporaryDirectory() as folder:
                content, _parts = build_archive(Path(folder))
            made.with_suffix(".new").write_bytes(content)
            made.with_suffix(".new").rename(made)
    finally:
        os.close(lock)
    return made
