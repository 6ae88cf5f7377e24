# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SSH key pairs of containers: generated on their agent, where the private keys stay."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .._model.held_session import PublicKeys


def ensure_keys(folder: Path) -> PublicKeys:
    """Return the public user and host key of a container; missing key pairs are generated in ``folder``.

    The user key is in OpenSSH's format, the host key in dropbear's, both ed25519 and mode 0600. Raises
    :class:`subprocess.CalledProcessError` if a tool fails.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    user, public, host = folder / "id_ed25519", folder / "id_ed25519.pub", folder / "host_key"
    if not public.exists():
        # The public key is written last: if it is missing, the generation was interrupted.
        user.unlink(missing_ok=True)
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(user))
    if not host.exists():
        _run("dropbearkey", "-t", "ed25519", "-f", str(host))
    listing = _run("dropbearkey", "-y", "-f", str(host))
    return PublicKeys(
        user=_strip_comment(public.read_text()),
        host=_strip_comment(next(line for line in listing.splitlines() if line.startswith("ssh-ed25519 "))),
    )


def _strip_comment(line: str) -> str:
    """Return type and key without the comment, which would contain the name of this host."""
    return " ".join(line.split()[:2])


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
