# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The SSH files of a session: every container knows every other, and no prompt is ever needed.

Only public halves appear here. The private ones are made on the agent that runs the container and stay there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .._model.plan import Kernel
from .._model.session import SSH_PORT
from .._model.ssh import PublicKeys


def known_hosts(kernels: Iterable[Kernel], keys: Mapping[str, PublicKeys]) -> str:
    """Return a complete ``known_hosts``: the host key of every container under its name and address."""
    return "".join(f"{_names(kernel)} {keys[kernel.hostname].host}\n" for kernel in kernels)


def ports(kernels: Iterable[Kernel]) -> str:
    """Return where containers listen that share their agents' network: ``hostname address port`` in each line."""
    return "".join(
        f"{kernel.hostname} {kernel.address} {kernel.ssh_port}\n" for kernel in kernels if kernel.ssh_port != SSH_PORT
    )


def _names(kernel: Kernel) -> str:
    """Return what a container is known as; with a port of its own, in the form that ``ssh`` looks for then."""
    names = filter(None, (kernel.hostname, kernel.address))
    return ",".join(name if kernel.ssh_port == SSH_PORT else f"[{name}]:{kernel.ssh_port}" for name in names)


def authorized_keys(
    kernel: Kernel, kernels: Iterable[Kernel], keys: Mapping[str, PublicKeys], users: Sequence[str]
) -> str:
    """Return who may log in to ``kernel``: every container of the session, and on main1 the user's own keys."""
    peers = [f"{keys[one.hostname].user} work@{one.hostname}" for one in kernels]
    return "".join(f"{line}\n" for line in [*peers, *(users if kernel.rank == 0 else ())])
