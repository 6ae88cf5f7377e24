# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stores the firewall of a host: the confirmed one, and one on trial.

A trial is active until it expires or is rolled back. Expiry needs no action: the next process that applies the rules
(the rollback timer, the reconciliation of the agent or its next boot) uses the confirmed firewall.
"""

from __future__ import annotations

import dataclasses
import time

from .._host.processes import boot_id
from .._host.store import CorruptStateError, Store
from .._model.files import dump_state, load_state, write_atomically
from .._model.plain_data import from_plain, to_plain
from .policy import Firewall


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
        return self.boot != boot_id() or read_uptime() >= self.until


@dataclasses.dataclass(frozen=True)
class _Stored:
    confirmed: Firewall | None
    trial: Trial | None


class FirewallState:
    """The stored firewall of a host. Changes require the isolation lock of the ``store``."""

    def __init__(self, store: Store) -> None:
        self._path = store.firewall_file
        self.confirmed, self.trial = self._read()

    def active(self) -> Firewall | None:
        """Return the active firewall; ``None`` if connections are not restricted."""
        return self.confirmed if self.trial is None or self.trial.expired else self.trial.firewall

    def save(self, confirmed: Firewall | None, trial: Trial | None) -> None:
        """Store the confirmed firewall and the trial."""
        self.confirmed, self.trial = confirmed, trial
        write_atomically(self._path, dump_state(to_plain(_Stored(confirmed, trial))))

    def _read(self) -> tuple[Firewall | None, Trial | None]:
        try:
            stored = from_plain(_Stored, load_state(self._path.read_text()), "the firewall")
            return stored.confirmed, stored.trial
        except FileNotFoundError:
            return None, None
        except (OSError, ValueError) as error:
            raise CorruptStateError(
                f"{self._path} is damaged ({error}): remove it, and provision this host again."
            ) from error


def read_uptime() -> float:
    """Return the uptime of the host in seconds, including suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
