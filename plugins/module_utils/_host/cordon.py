# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The cordon of an agent, as it is stored there."""

from __future__ import annotations

import dataclasses

from .._model.change import Change
from .._model.cordon import Cordon
from .._model.errors import ClusterError
from .._model.files import write_atomically
from .._model.state_format import StateFormat
from .store import Store

_FORMAT = StateFormat("the cordon", Cordon)


class DamagedCordonError(ClusterError):
    """The file of the cordon cannot be read. The message is one sentence."""


def read_cordon(store: Store) -> Cordon | None:
    """Return the cordon of this agent; ``None`` without one. Raises :class:`DamagedCordonError`."""
    try:
        return _FORMAT.load(store.cordon_file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DamagedCordonError(
            f"{store.cordon_file} is damaged ({error}): run backendai.cluster.cordon_agents or resume_agents."
        ) from error


def replace_cordon(store: Store, wanted: Cordon | None, *, check_mode: bool) -> tuple[Cordon | None, list[Change]]:
    """Set the cordon of this agent, or remove it, and return what it is then, and the change, if there is one.

    A cordon for the same reason stays as it is, unless its sessions are to end and did not have to, or are to end
    earlier. A damaged one is replaced.
    """
    with store.lock():
        before, damage = None, None
        try:
            before = read_cordon(store)
        except DamagedCordonError as error:
            damage = str(error)
        after = _keep_earlier(before, wanted)
        if before == after and damage is None:
            return after, []
        if not check_mode:
            _write(store, after)
        shown = [cordon.description if cordon else None for cordon in (before, after)]
        return after, [Change("cordon", damage or shown[0], shown[1])]


def _keep_earlier(before: Cordon | None, wanted: Cordon | None) -> Cordon | None:
    """Return the cordon that is wanted with the earlier of both ends; the existing one if it says the same."""
    if before is None or wanted is None:
        return wanted
    end = wanted.sessions_end_at
    if end is not None and before.sessions_end_at is not None:
        end = min(end, before.sessions_end_at)
    if (wanted.reason, end) == (before.reason, before.sessions_end_at):
        return before
    return dataclasses.replace(wanted, sessions_end_at=end)


def _write(store: Store, cordon: Cordon | None) -> None:
    if cordon is None:
        store.cordon_file.unlink()
    else:
        write_atomically(store.cordon_file, _FORMAT.dump(cordon))
