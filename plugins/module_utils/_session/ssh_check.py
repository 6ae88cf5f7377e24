# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks SSH logins from a container to its peers, and reads the peers' addresses in its ``/etc/hosts``.

A login is what a user types: ``ssh sub1`` in the user's own environment, with the ssh of the image and all that
configures it. Only its exit code counts, because shells, loaders and libraries of an image print beside the answer. It
says nothing but whether the user's own tools work; all else here is done by programs of the kit, by their full paths.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from .._docker.exec import BUSYBOX, KIT_PROGRAMS, ExecLimitError, run_as_work
from .._docker.sdk import docker

# A user would be asked, and would wait for longer.
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=5"

# The number of parallel logins of one container.
MAX_PARALLEL = 4

LOGIN_SECONDS = 10
"""The timeout of a login, and of a chain of logins."""

ERROR_SECONDS = LOGIN_SECONDS + 1
"""How long the errors of a login are read: for longer than it takes, as otherwise it has nobody to write them to."""

KILLED = "137"
"""The exit code of a login that was killed."""

ERROR_BYTES = 300
"""How much is read of what a failed login prints."""

HOSTS_BYTES = 1 << 18
"""How much is read of ``/etc/hosts``, which the container can write to."""

# A user whose PATH has no ssh uses that of the kit.
_TYPED = f'command -v ssh > /dev/null || PATH=$PATH:{KIT_PROGRAMS}; exec {SSH} "$@"'
_LOGIN = f"{BUSYBOX} timeout -s KILL {LOGIN_SECONDS} {KIT_PROGRAMS}/as-user -c {shlex.quote(_TYPED)} ssh"

# The exit code has a descriptor of its own. What a shell leaves behind may keep its errors open, so they are read for
# a limited time; and all of them, as otherwise who writes them fails.
_SCRIPT = f"""
set -f
n=0
log_in() {{ {_LOGIN} "$1" "{BUSYBOX} grep -Fqx $1 /proc/sys/kernel/hostname" < /dev/null; }}
read_errors() {{
    {BUSYBOX} timeout -s KILL {ERROR_SECONDS} \\
        {BUSYBOX} sh -c '{BUSYBOX} head -c {ERROR_BYTES}; {BUSYBOX} cat > /dev/null'
}}
check() {{ errors=$({{ log_in "$1" 3>&-; echo $? >&3; }} 2>&1 > /dev/null | read_errors 3>&-); echo $errors; }}
for peer; do
    (answer=$(check "$peer" 3>&1); echo "$peer" $answer) &
    n=$((n + 1))
    [ $((n % {MAX_PARALLEL})) -ne 0 ] || wait
done
wait
echo
{BUSYBOX} head -c {HOSTS_BYTES} /etc/hosts
"""


class LoginReport(NamedTuple):
    """The report of a container: ``addresses`` by the names in its ``/etc/hosts``, in the order of the file.

    ``failures`` has what each failed login has printed, in one line, by hostname.
    """

    addresses: dict[str, list[str]]
    failures: dict[str, str]


def check_logins(
    client: docker.APIClient, container: str, peers: Sequence[str], seconds: int | None = None
) -> LoginReport:
    """Log in from a running container to all ``peers``, as work, by name, with no prompt.

    All logins are one command of the engine. A login that hangs fails after :data:`LOGIN_SECONDS`, and all together
    end after ``seconds``, by default what they need at most.
    """
    limit = ERROR_SECONDS * (1 + len(peers) // MAX_PARALLEL) + 1
    try:
        output = run_as_work(
            client, container, [BUSYBOX, "sh", "-c", _SCRIPT, "sh", *peers], min(seconds or limit, limit)
        )
    except ExecLimitError as error:
        # The logins until then count.
        output = error.output
    answers, _empty, hosts = f"\n{output}".partition("\n\n")
    results = {peer: words for peer, *words in (line.split() for line in answers.splitlines() if line.strip())}
    failures = {peer: _describe_failure(results.get(peer, [])) for peer in peers}
    return LoginReport(_addresses(hosts), {peer: failure for peer, failure in failures.items() if failure})


def _describe_failure(words: Sequence[str]) -> str:
    """Return why a login failed, given its exit code and what it has printed; empty if it did not."""
    if not words:
        return "no answer"
    code, *errors = words
    if code == "0":
        return ""
    if code == KILLED:
        return ": ".join(filter(None, [f"no end within {LOGIN_SECONDS} seconds", " ".join(errors)]))
    return " ".join(errors) or f"it ends with exit code {code}"


def chain_passes(client: docker.APIClient, container: str, peers: Sequence[str]) -> bool:
    """Return whether a container can log in to the first of ``peers``, that one to the next, and so on to the last.

    Otherwise as :func:`check_logins`, in one command of the engine; which login failed is not known.
    """
    first, *others = peers
    remote = "".join(f"{SSH} {peer} " for peer in others)
    login = f"{_LOGIN} {first} {shlex.quote(f'{remote}{BUSYBOX} grep -Fqx {peers[-1]} /proc/sys/kernel/hostname')}"
    script = f"{login} > /dev/null 2>&1 < /dev/null && echo passed"
    try:
        output = run_as_work(client, container, [BUSYBOX, "sh", "-c", script], LOGIN_SECONDS + 1)
    except ExecLimitError:
        return False
    return output == "passed\n"


def _addresses(hosts: str) -> dict[str, list[str]]:
    addresses: dict[str, list[str]] = {}
    for address, *names in (
        line.partition("#")[0].split() for line in hosts.splitlines() if line.split("#")[0].strip()
    ):
        for name in names:
            addresses.setdefault(name, []).append(address)
    return addresses
