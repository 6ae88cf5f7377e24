# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One nftables table: what it is, how it differs from what is wanted, and its replacement.

What is wanted is loaded into a network namespace of its own and listed there. So ``nft`` itself says how it looks,
whatever its version, and every set, chain, rule and element that is missing, changed or added is noticed.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from collections.abc import Sequence

from .._model.change import Change
from .._model.errors import ClusterError, one_line

TABLE = "backendai"


_LOAD = ["nft", "--file", "-"]


class FirewallError(ClusterError):
    """``nft`` failed or is missing; the message is one sentence with what it said."""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of family ``inet``: its ``name``, and the ``playbook`` that installs ``nft`` on the hosts that have it.

    All methods raise :class:`FirewallError`.
    """

    name: str
    playbook: str

    def read(self) -> str:
        """Return the table of this host as ``nft`` lists it; empty where there is none."""
        done = self._run(self._list)
        if done.returncode and "No such file or directory" not in done.stderr:
            raise _failed(done)
        return done.stdout

    def plan(self, wanted: str) -> list[Change]:
        """Return how the table differs from the text ``wanted``, set by set and chain by chain.

        It is an error when ``nft`` does not understand the text.
        """
        found = self._parse_listing(self.read())
        due = self._parse_listing(self._listed(wanted))
        if not found:
            return [Change(f"firewall {self}", None, f"{len(due) - 1} sets and chains")]
        return [_change(part, found, due) for part in {**due, **found} if found.get(part) != due.get(part)]

    def apply(self, wanted: str) -> None:
        """Replace the table by the text ``wanted``, which is how it begins; other tables stay."""
        self._run_checked(_LOAD, wanted)

    def check(self, wanted: str) -> None:
        """Let ``nft`` check the text ``wanted`` on this host, and apply nothing."""
        self._run_checked([*_LOAD, "--check"], wanted)

    def __str__(self) -> str:
        """Return what ``nft`` calls it."""
        return f"table inet {self.name}"

    @property
    def _list(self) -> list[str]:
        return ["nft", "--stateless", "list", *str(self).split()]

    def _listed(self, wanted: str) -> str:
        return self._run_checked(
            ["unshare", "--net", "sh", "-c", f"{' '.join(_LOAD)} && {' '.join(self._list)}"], wanted
        )

    def _run_checked(self, command: Sequence[str], text: str) -> str:
        done = self._run(command, text)
        if done.returncode:
            raise _failed(done)
        return done.stdout

    def _run(self, command: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command, input=text, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
            )
        except FileNotFoundError as error:
            missing = f"{error.filename} is not installed on this host: run backendai.cluster.{self.playbook} on it."
            raise FirewallError(missing) from error

    def _parse_listing(self, listing: str) -> dict[str, list[str]]:
        """Return what a listing has of each set and chain, line by line, the elements of sets one by one and sorted.

        What the table has outside of them, such as flags, comes under the table's own name.
        """
        parts: dict[str, list[str]] = {}
        part = str(self)
        for line in re.sub(r",\s*\n\s*", ", ", listing).splitlines():
            text = line.strip()
            if text.endswith(" {"):
                part = text[:-2]
                parts[part] = []
            elif text == "}":
                part = str(self)
            elif text.startswith("elements = {"):
                parts[part] += sorted(text[len("elements = {") : -1].strip().split(", "))
            elif text:
                parts[part].append(text)
        return parts


# What keeps sessions apart, with the operator's firewall.
AGENTS_TABLE = Table(TABLE, "provision_agents")


def _failed(done: subprocess.CompletedProcess[str]) -> FirewallError:
    return FirewallError(f"nft: {one_line(done.stderr)}")


def _change(part: str, found: dict[str, list[str]], due: dict[str, list[str]]) -> Change:
    """Return what differs in a part: the lines that only one side has, or all where only their order differs."""
    subject = f"firewall {part}"
    if part not in due:
        return Change(subject, "not ours", None)
    if part not in found:
        return Change(subject, None, f"{len(due[part])} lines")
    before = [line for line in found[part] if line not in due[part]]
    after = [line for line in due[part] if line not in found[part]]
    if not before and not after:
        before, after = found[part], due[part]
    return Change(subject, "; ".join(before) or None, "; ".join(after) or None)
