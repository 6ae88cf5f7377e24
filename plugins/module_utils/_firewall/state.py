# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stores the firewall of a host: the confirmed one, and one on trial.

A trial is active until it expires or is rolled back. Expiry needs no action: the next process that applies the rules
(the rollback timer, the reconciliation of the agent or its next boot) uses the confirmed firewall.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from .._host.deadline import Deadline
from .._host.processes import open_sockets
from .._host.store import Store
from .._model.errors import as_phrase
from .._model.files import write_atomically
from .._model.reported_traffic import OFF
from .._model.state_format import StateFormat
from .._network.sockets import sockets
from .policy import REPORT, Firewall, check_firewall


@dataclasses.dataclass(frozen=True)
class Trial:
    """A firewall (``None`` for none) that is active until an uptime of this ``boot``, in seconds.

    Uptime is not affected by changes of the clock. ``connection`` is the SSH connection that started the trial, empty
    if Ansible does not use SSH.
    """

    firewall: Firewall | None
    nonce: str
    until: float
    boot: str
    connection: str

    @property
    def expired(self) -> bool:
        """Whether the trial has expired."""
        return Deadline(self.boot, self.until).passed


@dataclasses.dataclass(frozen=True)
class _Stored:
    confirmed: Firewall | None
    trial: Trial | None


_FORMAT = StateFormat("the firewall", _Stored)

PROVISION = "run backendai.cluster.provision_agents or provision_gateways for this host, which replaces it"


class FirewallState:
    """The stored firewall of a host. Changes require the isolation lock of the ``store``.

    While the file cannot be read, ``damage`` is a sentence about it, and the confirmed firewall is that of the copy
    that :meth:`save` keeps. Without a copy it admits SSH and nothing else, so that the operator is not locked out.
    """

    def __init__(self, store: Store) -> None:
        self._path, self._copy = store.firewall_file, store.firewall_copy
        self.damage = ""
        self.confirmed, self.trial = self._read()

    def active(self) -> Firewall | None:
        """Return the active firewall; ``None`` if connections are not restricted."""
        return self.confirmed if self.trial is None or self.trial.expired else self.trial.firewall

    @property
    def mode(self) -> str:
        """The mode of the active firewall, ``off`` without one."""
        firewall = self.active()
        return firewall.mode if firewall else OFF

    def usual_mode(self) -> str:
        """Return the mode where none is asked for: an enforcing host goes on so, a new one reports first."""
        return self.confirmed.mode if self.confirmed else REPORT

    def save(self, confirmed: Firewall | None, trial: Trial | None) -> None:
        """Store the confirmed firewall and the trial."""
        self.confirmed, self.trial, self.damage = confirmed, trial, ""
        # The copy first: it is never older than what it stands in for.
        write_atomically(self._copy, _FORMAT.dump(_Stored(confirmed, None)))
        write_atomically(self._path, _FORMAT.dump(_Stored(confirmed, trial)))

    def _read(self) -> tuple[Firewall | None, Trial | None]:
        try:
            stored = _load(self._path)
            return stored.confirmed, stored.trial
        except FileNotFoundError:
            # The operator has removed it.
            return None, None
        except (OSError, ValueError) as error:
            damaged = f"{self._path} is damaged ({as_phrase(error)})"
        try:
            confirmed = _load(self._copy).confirmed
            self.damage = f"{damaged}, so the last firewall that was confirmed is active: {PROVISION}."
        except (OSError, ValueError):
            confirmed = Firewall(EVERYWHERE, ssh_ports=tuple(sorted({22, *login_ports()})))
            self.damage = f"{damaged}, so only SSH and published ports are open: {PROVISION}."
        return confirmed, None


EVERYWHERE = ("0.0.0.0/0", "::/0")


def login_ports() -> set[int]:
    """Return the TCP ports on which sshd listens on this host, or systemd, which starts one for each connection."""
    inodes = {socket.inode: socket.port for socket in sockets("tcp") if socket.listening}
    return {inodes[inode] for inode in open_sockets(("sshd", "systemd")) & inodes.keys()}


def _load(path: Path) -> _Stored:
    """Return the content of a file. Raises :class:`OSError`, and :class:`ValueError` unless options could give it."""
    stored = _FORMAT.load(path.read_bytes())
    for firewall in (stored.confirmed, stored.trial.firewall if stored.trial else None):
        if firewall is not None:
            check_firewall(firewall)
    return stored
