# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks SSH logins from a container to its peers, and reads the peers' addresses in its ``/etc/hosts``."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence

from .._docker.exec import BUSYBOX, run_as_work
from .._docker.sdk import docker

# OpenSSH 10.1 and later warn about the key exchange of older servers, in the output that is compared.
SSH = "ssh -o LogLevel=ERROR -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=5"

# The number of parallel logins of one container.
MAX_PARALLEL = 4

_SCRIPT = f"""
set -f
n=0
for peer in "$@"; do
    (output=$({BUSYBOX} timeout 10 {SSH} "$peer" {BUSYBOX} hostname 2>&1 < /dev/null); echo "$peer" $output) &
    n=$((n + 1))
    [ $((n % {MAX_PARALLEL})) -ne 0 ] || wait
done
wait
echo
cat /etc/hosts
"""


@dataclasses.dataclass(frozen=True)
class LoginReport:
    """The report of a container: ``addresses`` by the names in its ``/etc/hosts``, in the order of the file.

    ``failures`` has the output of each failed login in one line, by hostname; it may be empty.
    """

    addresses: dict[str, list[str]]
    failures: dict[str, str]


def check_logins(client: docker.APIClient, container: str, peers: Sequence[str]) -> LoginReport:
    """Log in from a running container to all ``peers``, as work, by name, with strict host key checking and no prompt.

    All logins are one command of the engine. A login that hangs fails after 10 seconds.
    """
    output = run_as_work(client, container, shlex.join([BUSYBOX, "sh", "-c", _SCRIPT, "sh", *peers]))
    answers, _empty, hosts = f"\n{output}".partition("\n\n")
    results = {
        peer: " ".join(words) for peer, *words in (line.split() for line in answers.splitlines() if line.strip())
    }
    return LoginReport(_addresses(hosts), {peer: results.get(peer, "") for peer in peers if results.get(peer) != peer})


def chain_passes(client: docker.APIClient, container: str, peers: Sequence[str]) -> bool:
    """Return whether a container can log in to the first of ``peers``, that one to the next, and so on to the last.

    Otherwise as :func:`check_logins`, in one command of the engine; which login failed is not known.
    """
    logins = " ".join(f"{SSH} {peer}" for peer in peers)
    return run_as_work(client, container, f"{BUSYBOX} timeout 10 {logins} {BUSYBOX} hostname").split() == [peers[-1]]


def _addresses(hosts: str) -> dict[str, list[str]]:
    addresses: dict[str, list[str]] = {}
    for address, *names in (
        line.partition("#")[0].split() for line in hosts.splitlines() if line.split("#")[0].strip()
    ):
        for name in names:
            addresses.setdefault(name, []).append(address)
    return addresses
