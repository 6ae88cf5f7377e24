# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was on a host before it was provisioned, so that it can be given back as it was.

One file for all roles of this collection on the host. What an installation adds is the difference between the host
before and after it, so it includes dependencies, and the users and groups that packages create.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from .._model.errors import ClusterError, as_phrase
from .._model.files import write_atomically
from .._model.state_format import StateFormat

RECORD = Path("/var/lib/backendai/before.json")
"""The file; wherever the state of an agent or a gateway is."""

MARKS = {
    "agent": Path("etc/systemd/system/backendai-restore.service"),
    "gateway": Path("etc/systemd/system/backendai-gateway.service"),
    "manager": Path("usr/local/lib/backendai-manager/serve"),
}
"""A file of each role, below the root, that is there as long as the host has the role."""


class DamagedRecordError(ClusterError):
    """The record cannot be read. The message is one sentence."""


@dataclasses.dataclass(frozen=True)
class Installed:
    """The names of the packages, users and groups of a host."""

    packages: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def __sub__(self, other: Installed) -> Installed:
        """Return what ``other`` lacks."""
        return Installed(self.packages - other.packages, self.users - other.users, self.groups - other.groups)

    def __or__(self, other: Installed) -> Installed:
        """Return what either has."""
        return Installed(self.packages | other.packages, self.users | other.users, self.groups | other.groups)


@dataclasses.dataclass(frozen=True)
class HostRecord:
    """What was there, and what was ``added`` since.

    ``complete`` is false for a host whose record was lost, of which it is not known what was there.
    ``before`` is what was there when an installation began that has not ended, and ``wanted`` what it was to add.
    ``lost`` are packages of before that other packages have replaced.
    ``sysctls`` and ``units`` have the first values of kernel settings and the first states of units, by name, and
    ``tables`` are the nftables tables of the first time.
    ``engine_folder`` has the data of an engine that had nothing of others when its removal began. ``agent_engine`` is
    where the engine comes from, as the first provisioning of the agent has chosen.
    """

    complete: bool = True
    added: Installed = Installed()
    before: Installed | None = None
    wanted: Installed = Installed()
    lost: frozenset[str] = frozenset()
    sysctls: dict[str, str] = dataclasses.field(default_factory=dict)
    units: dict[str, str] = dataclasses.field(default_factory=dict)
    tables: tuple[str, ...] = ()
    engine_folder: str = ""
    agent_engine: str = ""


def begin(
    record: HostRecord,
    host: Installed,
    wanted: Installed,
    sysctls: Mapping[str, str],
    units: Mapping[str, str],
    automatic: Collection[str] = (),
) -> HostRecord:
    """Return the record before what is ``wanted`` is installed.

    What it has of before stays. ``host``, ``sysctls``, ``units`` and ``automatic`` are the present state.
    """
    new = wanted - host != Installed()
    return dataclasses.replace(
        end_interrupted(record, host, automatic),
        before=host if new else None,
        wanted=wanted if new else Installed(),
        # A removal that was interrupted is not continued.
        engine_folder="",
        sysctls={**sysctls, **record.sysctls},
        units={**units, **record.units},
    )


def end(record: HostRecord, host: Installed) -> HostRecord:
    """Return the record after an installation."""
    return record if record.before is None else _ended(record, host, record.before, host - record.before)


def end_interrupted(record: HostRecord, host: Installed, automatic: Collection[str]) -> HostRecord:
    """Return the record after an installation that was interrupted, if there is one.

    Others may have installed something since. So dependencies, the packages that are ``automatic``, belong to it only
    if nobody has asked for another package, and users and groups only if they were wanted.
    """
    if record.before is None:
        return record
    came = host - record.before
    certain = came - (came - record.wanted)
    if came.packages <= record.wanted.packages.union(automatic):
        certain |= Installed(came.packages)
    return _ended(record, host, record.before, certain)


def _ended(record: HostRecord, host: Installed, before: Installed, came: Installed) -> HostRecord:
    lost = record.lost | (before.packages - host.packages)
    return dataclasses.replace(record, added=record.added | came, lost=lost, before=None, wanted=Installed())


_FORMAT = StateFormat("the record", HostRecord)


def read_record(path: Path = RECORD) -> HostRecord | None:
    """Return the record; ``None`` without one. Raises :class:`DamagedRecordError`."""
    try:
        return _FORMAT.load(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DamagedRecordError(
            f"{path} cannot be read ({as_phrase(error)}), so it is not known what was on this host before it was"
            " provisioned: give the host back with the version that wrote it, or repair it. Without it, packages and"
            " kernel settings stay when the host is given back."
        ) from error


def write_record(record: HostRecord, path: Path = RECORD) -> None:
    """Write the record atomically."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(path, _FORMAT.dump(record, indent=1) + "\n")


def find_roles(root: Path = Path("/")) -> list[str]:
    """Return the roles of the host below ``root``."""
    return [role for role, mark in MARKS.items() if (root / mark).exists()]


def first_record(tables: Iterable[str], roles: Collection[str]) -> HostRecord:
    """Return the record of a host without one: it is incomplete if the host has ``roles`` already."""
    return HostRecord(complete=not roles, tables=tuple(tables))
