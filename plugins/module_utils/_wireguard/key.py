# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The key pair of an agent's WireGuard device: made here, the private half never leaves, nor is it ever read."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from ansible_collections.backendai.cluster.plugins.module_utils._model.files import write_atomically

PRIVATE, PUBLIC = "private", "public"


def read_public_key(folder: Path) -> str:
    """Return the public half of the pair in ``folder``; empty where there is none."""
    public = folder / PUBLIC
    return public.read_text().strip() if public.exists() else ""


def make_key(folder: Path) -> str:
    """Make a pair in ``folder``, which is for root alone, and return its public half.

    The public half is written last: without it, whoever made the pair was interrupted. Raises
    :class:`subprocess.CalledProcessError` when ``wg`` fails.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    private = folder / PRIVATE
    with open(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        subprocess.run(["wg", "genkey"], check=True, stdout=stream, stderr=subprocess.PIPE, text=True)
    with open(private, "rb") as stream:
        made = subprocess.run(["wg", "pubkey"], check=True, stdin=stream, capture_output=True, text=True)
    write_atomically(folder / PUBLIC, made.stdout)
    return made.stdout.strip()


def remove_key(folder: Path) -> None:
    """Remove the pair, and its folder with it."""
    shutil.rmtree(folder)
