# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The operator's firewall as a host remembers it: the one that is confirmed, and one that is on trial.

What is on trial holds until its time is over or it is withdrawn, and nothing has to happen for that: whoever makes the
rules true afterwards, the timer of the trial, the healing of the agent or its next boot, finds the confirmed one.
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
    """A firewall (``None``: to have none) that is tried until a time of this ``boot``, in seconds since that.

    No clock that somebody may set has a say in it. ``connection`` is the SSH connection that began it, empty where
    Ansible came in another way.
    """

    firewall: Firewall | None
    nonce: str
    until: float
    boot: str
    connection: str

    @property
    def expired(self) -> bool:
        """Whether its time is over."""
        return self.boot != boot_id() or read_uptime() >= self.until


@dataclasses.dataclass(frozen=True)
class _Stored:
    confirmed: Firewall | None
    trial: Trial | None


class FirewallState:
    """The firewall of a host in its ``store``. Whoever changes it holds the lock of the rules."""

    def __init__(self, store: Store) -> None:
        self._path = store.firewall_file
        self.confirmed, self.trial = self._read()

    def active(self) -> Firewall | None:
        """Return the firewall that holds now; ``None`` where everybody may come in."""
        return self.confirmed if self.trial is None or self.trial.expired else self.trial.firewall

    def save(self, confirmed: Firewall | None, trial: Trial | None) -> None:
        """Remember these two from now on."""
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
    """Return for how long the host has been up, in seconds, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
