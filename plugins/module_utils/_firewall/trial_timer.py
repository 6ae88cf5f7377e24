# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The way back from firewall rules that lock out: it goes off by itself, whatever becomes of the run that began it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from ansible_collections.backendai.cluster.plugins.module_utils._host.background import detach
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import PROGRAM, NotProvisioned

# There where systemd runs the host (sd_booted(3)).
SYSTEMD = Path("/run/systemd/system")


def start_withdrawal(state_path: str, docker_host: str, nonce: str, seconds: int) -> None:
    """Withdraw the trial with that nonce in so many seconds, by a timer of systemd or else a process of its own.

    Once a trial is confirmed, its withdrawal does nothing. Raises :class:`NotProvisioned` where the program is missing
    that does it, and :class:`subprocess.CalledProcessError` where systemd refuses.
    """
    if not PROGRAM.is_file():
        raise NotProvisioned(f"{PROGRAM} is missing: apply the role backendai.cluster.firewall to this host.")
    command = [sys.executable, str(PROGRAM), "--state-path", state_path, "--docker-host", docker_host]
    command += ["--withdraw", nonce]
    if not SYSTEMD.is_dir():
        # None of the connection's own files: it would not end before they are closed.
        nothing = os.open(os.devnull, os.O_RDONLY)
        detach(lambda: _later(seconds, command), nothing)
        os.close(nothing)
        return
    timer = [f"--unit=backendai-firewall-{nonce[:8]}", f"--on-active={seconds}", "--timer-property=AccuracySec=100ms"]
    subprocess.run(["systemd-run", "--quiet", *timer, *command], check=True, capture_output=True, text=True)


def _later(seconds: int, command: list[str]) -> None:
    time.sleep(seconds)
    os.execv(command[0], command)
