# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which restarts are due, because something installed packages: by hand, or by night, as unattended-upgrades does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_MODULE = ("modinfo", "--field=version", "nvidia")


def due_restarts(root: Path = Path("/")) -> list[str]:
    """Return a sentence for each restart that is due on the host below ``root``."""
    due = []
    program = os.path.basename(_engine(root))
    if program.startswith("dockerd") and program.endswith(" (deleted)"):
        due.append("a restart of the Docker engine is due: its program was replaced while it runs")
    loaded, installed = _read(root / "sys/module/nvidia/version"), ""
    if loaded:
        try:
            found = subprocess.run(_MODULE, capture_output=True, text=True, check=False)
            installed = found.stdout.strip()
        except OSError:
            pass
    if installed not in ("", loaded):
        due.append(f"a reboot is due: NVIDIA's driver {loaded} is loaded, and {installed} is installed")
    if (root / "run/reboot-required").exists():
        packages = ", ".join(sorted({*_read(root / "run/reboot-required.pkgs").split()}))
        due.append(f"a reboot is due{f': packages ask for it ({packages})' if packages else ''}")
    remedy = "cordon_agents, and reboot_agents when its sessions have ended, which it would interrupt"
    return [f"{sentence}: {remedy}." for sentence in due]


def _engine(root: Path) -> str:
    """Return the path of the program that runs as the engine; empty if none is known to."""
    try:
        return os.readlink(root / "proc" / _read(root / "run/docker.pid") / "exe")
    except OSError:
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
