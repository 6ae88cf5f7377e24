"""The kit as an agent builds it: scripts of the role, and programs from packages of this machine's distribution.

The packages are unpacked below ``.cache``, not installed: nobody wants their daemons on the machine that tests.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
import yaml

from ansible_collections.backendai.cluster.plugins.module_utils._host import kit
from tests.lab.debian import unpack
from tests.unit.builders import REPOSITORY

PACKAGES = ("busybox-static", "openssh-client", "openssh-server", "shellinabox")
SCRIPTS = REPOSITORY / "roles/agent/files/kit"
_CACHE = REPOSITORY / ".cache/kit-programs"


def scripts() -> dict[str, str]:
    """Return the scripts that the role gives to the kit, by path."""
    tasks = yaml.safe_load((REPOSITORY / "roles/agent/tasks/main.yml").read_text())
    (task,) = [
        task for block in tasks for task in block.get("block", [block]) if "backendai.cluster.runtime_kit" in task
    ]
    sources = task["backendai.cluster.runtime_kit"]["scripts"]
    return {path: (SCRIPTS / value.split("'kit/")[1].split("'")[0]).read_text() for path, value in sources.items()}


def install(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Build the kit and install it below a folder; return its own folder."""
    programs = _programs()
    libraries = [
        str(folder) for folder in (programs / "usr/lib", programs / "lib") for folder in folder.glob("*-linux-gnu")
    ]
    monkeypatch.setenv("LD_LIBRARY_PATH", ":".join(libraries))
    monkeypatch.setattr(kit, "BUSYBOX", str(_below(programs, kit.BUSYBOX)))
    monkeypatch.setattr(kit, "PROGRAMS", tuple(str(_below(programs, path)) for path in kit.PROGRAMS))
    parts = {str(programs / path[1:]): options for path, options in kit.SSHD_PROGRAMS.items()}
    monkeypatch.setattr(kit, "SSHD_PROGRAMS", parts)
    built = kit.build_kit(scripts())
    kit.install_kit(built, str(root), kit.kit_changes(built, str(root)))
    return root / built.version


def _below(folder: Path, path: str) -> Path:
    """Return where a program of a package is unpacked: releases differ in whether ``/bin`` is a folder of its own."""
    return next(found for found in (folder / path[1:], folder / "usr" / path[1:]) if found.exists())


def _programs() -> Path:
    _CACHE.mkdir(parents=True, exist_ok=True)
    lock = os.open(_CACHE, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (_CACHE / "unpacked").exists():
            unpack(_CACHE, *PACKAGES)
            (_CACHE / "unpacked").touch()
    finally:
        os.close(lock)
    return _CACHE
