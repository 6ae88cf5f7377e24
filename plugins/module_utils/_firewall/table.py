# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads, compares and replaces an nftables table of this host, or of a container's network namespace.

The desired table is loaded into a separate network namespace and listed there, so both sides have the format of the
installed ``nft``, and every set, chain, rule and element that is missing, changed or added is detected.
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

# Log limit of each chain that drops or reports; all packets are counted.
LOG_RATE = "6/minute"

_LOAD = ["nft", "--file", "-"]


class FirewallError(ClusterError):
    """``nft`` failed or is missing; the message contains its error."""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table with its ``name``, in each of its ``families``, and the ``playbook`` that installs ``nft`` on its hosts.

    Tables of several families are one unit: read, compared and replaced together. With ``pid``, they are those of that
    process's network namespace. All methods raise :class:`FirewallError`.
    """

    name: str
    playbook: str
    families: tuple[str, ...] = ("inet",)
    pid: int | None = None

    def read(self) -> str:
        """Return the table as listed by ``nft``; empty if there is none."""
        results = [self._run([*self._enter, *command]) for command in self._list_commands]
        for result in results:
            if result.returncode and "No such file or directory" not in result.stderr:
                raise _nft_error(result)
        return "".join(result.stdout for result in results)

    def plan(self, ruleset: str) -> list[Change]:
        """Return how the table differs from ``ruleset``, set by set and chain by chain.

        Raises :class:`FirewallError` also when ``nft`` rejects the text.
        """
        return self.compare(self.list_loaded(ruleset))

    def compare(self, listing: str) -> list[Change]:
        """Return how the table differs from a ``listing`` of :meth:`list_loaded`."""
        current = self._parse_listing(self.read())
        desired = self._parse_listing(listing)
        if not current:
            return [Change(f"firewall {self}", None, f"{len(desired) - 1} sets and chains")]
        return [
            _compare_part(part, current, desired)
            for part in {**desired, **current}
            if current.get(part) != desired.get(part)
        ]

    def apply(self, ruleset: str) -> None:
        """Replace the table by ``ruleset``, which deletes the old one first; other tables stay."""
        self._run_checked([*self._enter, *_LOAD], ruleset)

    def check(self, ruleset: str) -> None:
        """Check ``ruleset`` with ``nft`` on this host without applying it."""
        self._run_checked([*_LOAD, "--check"], ruleset)

    def list_loaded(self, ruleset: str) -> str:
        """Return the listing of the table once ``ruleset`` is loaded, without loading it on this host."""
        steps = [_LOAD, *self._list_commands]
        return self._run_checked(["unshare", "--net", "sh", "-c", " && ".join(map(" ".join, steps))], ruleset)

    def __str__(self) -> str:
        """Return the first family and the name, as in ``nft`` commands."""
        return f"table {self.families[0]} {self.name}"

    @property
    def _list_commands(self) -> list[list[str]]:
        return [["nft", "--stateless", "list", "table", family, self.name] for family in self.families]

    @property
    def _enter(self) -> list[str]:
        return [] if self.pid is None else ["nsenter", f"--target={self.pid}", "--net"]

    def _run_checked(self, command: Sequence[str], text: str) -> str:
        result = self._run(command, text)
        if result.returncode:
            raise _nft_error(result)
        return result.stdout

    def _run(self, command: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command, input=text, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
            )
        except FileNotFoundError as error:
            missing = f"{error.filename} is not installed on this host: run backendai.cluster.{self.playbook} on it."
            raise FirewallError(missing) from error

    def _parse_listing(self, listing: str) -> dict[str, list[str]]:
        """Return the lines of each set and chain of a listing, with the elements of sets as sorted lines.

        Lines outside of them, such as flags, are under the name of the table.
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
                # Those of dynamic sets are added by packets.
                if "flags dynamic" not in parts[part]:
                    parts[part] += sorted(text[len("elements = {") : -1].strip().split(", "))
            elif text:
                parts[part].append(text)
        return parts


# The tables of agents: isolation of sessions and the host firewall, and the frames of containers.
AGENTS_TABLE = Table(TABLE, "provision_agents", ("inet", "bridge"))


def _nft_error(result: subprocess.CompletedProcess[str]) -> FirewallError:
    return FirewallError(f"nft: {one_line(result.stderr)}")


def _compare_part(part: str, current: dict[str, list[str]], desired: dict[str, list[str]]) -> Change:
    """Return the lines of a part that only one side has, or all lines if only their order differs."""
    subject = f"firewall {part}"
    if part not in desired:
        return Change(subject, "not ours", None)
    if part not in current:
        return Change(subject, None, f"{len(desired[part])} lines")
    before = [line for line in current[part] if line not in desired[part]]
    after = [line for line in desired[part] if line not in current[part]]
    if not before and not after:
        before, after = current[part], desired[part]
    return Change(subject, "; ".join(before) or None, "; ".join(after) or None)
