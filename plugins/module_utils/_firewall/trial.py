# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Applies a new firewall on trial: it must be confirmed over a new SSH connection, or it is rolled back automatically.

The rollback timer does not depend on the run that started the trial.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .._host.deadline import deadline_in
from .._host.processes import daemonize
from .._host.store import PROGRAM, NotProvisionedError, Store
from .._model.change import Change
from .._model.errors import ClusterError
from .._network.host import interfaces
from .foreign import keep
from .policy import Firewall
from .state import FirewallState, Trial
from .sync import render_ruleset, sync_ruleset
from .table import AGENTS_TABLE

_NOT_VERIFIED = "so SSH access is not verified: the old rules are restored, unless firewall_confirm_force is true"

# Schedules the rollback of a trial (its nonce) after a number of seconds, independent of this process.
StartTimer = Callable[[str, int], None]


class ConfirmError(ClusterError):
    """A trial cannot be confirmed over this connection, or has expired; the message is one sentence."""


class TrialResult(NamedTuple):
    """The changes, and the nonce with which the trial is confirmed; empty without a trial."""

    changes: list[Change]
    nonce: str


def apply_with_rollback(
    store: Store,
    firewall: Firewall | None,
    seconds: int,
    connection: str,
    start_timer: StartTimer,
    *,
    check_mode: bool,
    always: bool = False,
) -> TrialResult:
    """Start the trial of a new firewall, or apply the rules of the confirmed one; that is tried again with ``always``.

    ``None`` stands for no firewall. ``nft`` checks the rules first, then the rollback is scheduled, then the rules are
    replaced atomically. Raises :class:`FirewallError`, :class:`ClusterError`, :class:`CorruptStateError`, and what
    ``start_timer`` raises; nothing has changed then.
    """
    unknown = sorted(set(firewall.interfaces if firewall else ()) - interfaces())
    if unknown:
        raise ClusterError(f"firewall_interfaces: {unknown[0]!r} is not an interface of this host")
    with store.isolation_lock():
        state = FirewallState(store)
        checked = render_ruleset(store, firewall)
        AGENTS_TABLE.check(checked)
        if state.trial is None and state.confirmed == firewall and not always:
            trial = None
        else:
            # Raises for an unreadable session: existing rules would stay, and the new ones not be tried.
            store.sessions()
            end = deadline_in(seconds)
            trial = Trial(firewall, os.urandom(16).hex(), end.uptime, end.boot, connection)
        if check_mode:
            return TrialResult(AGENTS_TABLE.plan(checked), "")
        if state.damage and trial is None:
            state.save(state.confirmed, None)
        if trial is not None:
            start_timer(trial.nonce, seconds)
            state.save(state.confirmed, trial)
    changes = _sync_or_roll_back(store, trial)
    return TrialResult(changes, trial.nonce if trial else "")


def confirm(store: Store, nonce: str, connection: str, *, force: bool) -> None:
    """Confirm the firewall on trial; with ``force`` even if SSH access is not verified.

    Raises :class:`ConfirmError`; the previous firewall is active then, or will be after the timeout.
    """
    with store.isolation_lock():
        _check_confirmation(FirewallState(store).trial, nonce, connection, force)
    # Before the others, and not under their lock: each command takes a part of a second.
    with keep(store), store.isolation_lock():
        state = FirewallState(store)
        state.save(_check_confirmation(state.trial, nonce, connection, force).firewall, None)


def _check_confirmation(trial: Trial | None, nonce: str, connection: str, force: bool) -> Trial:
    """Return the trial if this connection may confirm it."""
    if trial is None or trial.nonce != nonce or trial.expired:
        raise ConfirmError(
            "firewall_confirm_timeout: the new rules were not confirmed in time, and the old ones are restored"
        )
    if not force and not connection:
        raise ConfirmError(f"this connection does not use SSH, {_NOT_VERIFIED}")
    if not force and connection == trial.connection:
        raise ConfirmError(f"this connection was opened before the new rules were applied, {_NOT_VERIFIED}")
    return trial


def roll_back(store: Store, nonce: str) -> list[Change]:
    """Roll back an unconfirmed trial and return the changes; a trial with another nonce continues."""
    ours = False
    with store.isolation_lock():
        state = FirewallState(store)
        if state.trial is not None and state.trial.nonce == nonce:
            state.save(state.confirmed, None)
            ours = True
    return sync_ruleset(store, check_mode=False, trial_over=ours)


def _sync_or_roll_back(store: Store, trial: Trial | None) -> list[Change]:
    try:
        return sync_ruleset(store, check_mode=False)
    except BaseException:
        if trial is not None:
            roll_back(store, trial.nonce)
        raise


# Exists if the host was booted with systemd (sd_booted(3)).
SYSTEMD = Path("/run/systemd/system")


def schedule_rollback(state_path: str, docker_host: str, nonce: str, seconds: int) -> None:
    """Schedule the rollback of the trial with that nonce, with a systemd timer or else a background process.

    It has no effect on a confirmed trial. Raises :class:`NotProvisionedError` if the program is missing, and
    :class:`subprocess.CalledProcessError` if systemd fails.
    """
    if not PROGRAM.is_file():
        raise NotProvisionedError(f"{PROGRAM} is missing: apply the role backendai.cluster.firewall to this host.")
    command = [sys.executable, str(PROGRAM), "--state-path", state_path, "--docker-host", docker_host]
    command += ["--withdraw", nonce]
    if not SYSTEMD.is_dir():
        # The process must not inherit files of the SSH connection, which would stay open until they are closed.
        nothing = os.open(os.devnull, os.O_RDONLY)
        daemonize(lambda: _run_later(seconds, command), nothing)
        os.close(nothing)
        return
    timer = [f"--unit=backendai-firewall-{nonce[:8]}", f"--on-active={seconds}", "--timer-property=AccuracySec=100ms"]
    subprocess.run(["systemd-run", "--quiet", *timer, *command], check=True, capture_output=True, text=True)


def _run_later(seconds: int, command: list[str]) -> None:
    time.sleep(seconds)
    os.execv(command[0], command)
