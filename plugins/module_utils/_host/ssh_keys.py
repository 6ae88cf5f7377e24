# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SSH key pairs of containers: generated on their agent, where the private keys stay."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from .._model.held_session import PublicKeys
from .kit import host_command

PRIVATE_KEYS = ("id_ed25519", "ssh_host_ed25519_key")
"""The private keys of a container: its user's and its host's."""


def ensure_keys(folder: Path, kit: str) -> PublicKeys:
    """Return the public user and host key of a container; missing key pairs are generated in ``folder``.

    Both are ed25519, in OpenSSH's format; the group of the folder may read them. ``kit`` is the folder of the kit,
    since the host may have no OpenSSH. Raises :class:`subprocess.CalledProcessError` if ``ssh-keygen`` fails.
    """
    user, host = (_ensure_key(folder / name, kit) for name in PRIVATE_KEYS)
    return PublicKeys(user=user, host=host)


def _ensure_key(private: Path, kit: str) -> str:
    """Return type and public key; the comment is empty, because it would contain the name of this host."""
    public = private.with_suffix(".pub")
    if not public.exists():
        # The public key is written last: if it is missing, the generation was interrupted.
        private.unlink(missing_ok=True)
        command = (*host_command(kit, "ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(private))
        # The host's configuration of OpenSSL may name modules for another version.
        environment = {**os.environ, "OPENSSL_CONF": os.devnull}
        subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    for path in (private, public):
        path.chmod(0o640)
    return " ".join(public.read_text().split()[:2])
