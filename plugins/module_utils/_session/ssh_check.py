# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks SSH logins from a container to its peers, and reads the peers' addresses in its ``/etc/hosts``.

All programs are the kit's, by their full paths, since those of the container may be anything. What runs on the other
side of a login is the container's own shell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .._docker.exec import BUSYBOX, KIT_PROGRAMS, ExecLimitError, run_as_work
from .._docker.sdk import docker

# OpenSSH 10.1 and later warn about the key exchange of older servers, in the output that is compared. A shared
# connection would keep the output open. The image's configuration in /etc/ssh may be for another version of ssh.
SSH = (
    f"{KIT_PROGRAMS}/ssh -o LogLevel=ERROR -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=5"
    " -o ControlMaster=no -o ControlPath=none -F /home/work/.ssh/config"
)

# The number of parallel logins of one container.
MAX_PARALLEL = 4

LOGIN_SECONDS = 10
"""The timeout of a login, and of a chain of logins."""

ANSWER_BYTES = 300
"""How much is read of what a login prints."""

HOSTS_BYTES = 1 << 18
"""How much is read of ``/etc/hosts``, which the container can write to."""

# The image's shell, which runs the command, may print a warning beside the answer: that has a mark.
_LOGIN = f"{BUSYBOX} timeout -s KILL {LOGIN_SECONDS} {SSH}"
_SCRIPT = f"""
set -f
n=0
for peer in "$@"; do
    (output=$({_LOGIN} "$peer" '{BUSYBOX} echo =$({BUSYBOX} hostname)' 2>&1 < /dev/null |
        {BUSYBOX} head -c {ANSWER_BYTES}); echo "$peer" $output) &
    n=$((n + 1))
    [ $((n % {MAX_PARALLEL})) -ne 0 ] || wait
done
wait
echo
{BUSYBOX} head -c {HOSTS_BYTES} /etc/hosts
"""


class LoginReport(NamedTuple):
    """The report of a container: ``addresses`` by the names in its ``/etc/hosts``, in the order of the file.

    ``failures`` has the output of each failed login in one line, by hostname.
    """

    addresses: dict[str, list[str]]
    failures: dict[str, str]


def check_logins(
    client: docker.APIClient, container: str, peers: Sequence[str], seconds: int | None = None
) -> LoginReport:
    """Log in from a running container to all ``peers``, as work, by name, with strict host key checking and no prompt.

    All logins are one command of the engine. A login that hangs fails after :data:`LOGIN_SECONDS`, and all together
    end after ``seconds``, by default what they need at most.
    """
    limit = LOGIN_SECONDS * (1 + len(peers) // MAX_PARALLEL) + 1
    try:
        output = run_as_work(
            client, container, [BUSYBOX, "sh", "-c", _SCRIPT, "sh", *peers], min(seconds or limit, limit)
        )
    except ExecLimitError as error:
        # The logins until then count.
        output = error.output
    answers, _empty, hosts = f"\n{output}".partition("\n\n")
    results = {peer: words for peer, *words in (line.split() for line in answers.splitlines() if line.strip())}
    failures = {
        peer: " ".join(word.removeprefix("=") for word in results.get(peer, [])) or "no answer"
        for peer in peers
        if f"={peer}" not in results.get(peer, [])
    }
    return LoginReport(_addresses(hosts), failures)


def chain_passes(client: docker.APIClient, container: str, peers: Sequence[str]) -> bool:
    """Return whether a container can log in to the first of ``peers``, that one to the next, and so on to the last.

    Otherwise as :func:`check_logins`, in one command of the engine; which login failed is not known.
    """
    logins = " ".join(f"{SSH} {peer}" for peer in peers)
    try:
        output = run_as_work(client, container, f"{logins} {BUSYBOX} hostname".split(), LOGIN_SECONDS)
    except ExecLimitError:
        return False
    return output.split() == [peers[-1]]


def _addresses(hosts: str) -> dict[str, list[str]]:
    addresses: dict[str, list[str]] = {}
    for address, *names in (
        line.partition("#")[0].split() for line in hosts.splitlines() if line.split("#")[0].strip()
    ):
        for name in names:
            addresses.setdefault(name, []).append(address)
    return addresses
