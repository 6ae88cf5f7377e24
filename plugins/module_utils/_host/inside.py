# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later


"""Commands inside a container, through its namespaces.

``docker exec`` would do the same, for 35 to 50 ms of the engine's time each; entering takes 3 ms (measured).
"""

from __future__ import annotations

import subprocess

BUSYBOX = "/opt/backendai/bin/busybox"


def run_as_work(pid: int, line: str, seconds: float = 30) -> str:
    """Return what a shell line prints, run by user work in a login shell of the container with that main process.

    Output and errors come together; so does the fact that it took longer than ``seconds``.
    """
    enter = ["nsenter", "--target", str(pid), "--mount", "--uts", "--ipc", "--net", "--pid"]
    try:
        done = subprocess.run(
            [*enter, BUSYBOX, "su", "-", "work", "-c", line],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {seconds:.0f} s"
    return done.stdout.decode(errors="replace")
