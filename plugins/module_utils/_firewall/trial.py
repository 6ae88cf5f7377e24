# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A new firewall is tried, and stays only if the operator still gets in, over a connection that is new as well.

The way back goes off by itself, whatever becomes of the run that began the trial.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from .._host.processes import boot_id, daemonize
from .._host.store import PROGRAM, NotProvisionedError, Store
from .._model.change import Change
from .._model.errors import ClusterError
from .._network.host import interfaces
from .policy import Firewall
from .state import FirewallState, Trial, read_uptime
from .sync import render_ruleset, sync_ruleset
from .table import AGENTS_TABLE

_UNPROVEN = "so nothing shows that managers get in: the old rules come back, unless firewall_confirm_force is true"

# What sees to it that a trial (its nonce) is withdrawn after so many seconds, whatever becomes of this process.
StartTimer = Callable[[str, int], None]


class ConfirmError(ClusterError):
    """A trial cannot be confirmed in this way, or any more; the message is one sentence."""


@dataclasses.dataclass(frozen=True)
class TrialResult:
    """What came of a wish: what changed, and the nonce with which a trial is confirmed; empty where there is none."""

    changes: list[Change]
    nonce: str


def apply_with_rollback(
    store: Store, wanted: Firewall | None, seconds: int, connection: str, start_timer: StartTimer, *, dry: bool
) -> TrialResult:
    """Begin the trial of a firewall that is not in force yet; the rules of one that is are made true.

    ``None`` stands for no firewall. The rules are checked by ``nft`` first, then the way back is prepared, then they
    are replaced in one step. Raises :class:`FirewallError`, :class:`ClusterError`, :class:`CorruptStateError`, and what
    ``start_timer`` raises: then nothing has changed.
    """
    unknown = sorted(set(wanted.interfaces if wanted else ()) - interfaces())
    if unknown:
        raise ClusterError(f"firewall_interfaces: {unknown[0]!r} is no interface of this host")
    with store.isolation_lock():
        state = FirewallState(store)
        checked = render_ruleset(store, wanted)
        AGENTS_TABLE.check(checked)
        if state.trial is None and state.confirmed == wanted:
            trial = None
        else:
            # While one cannot be read, the rules that are there stay: nothing would be tried.
            store.sessions()
            trial = Trial(wanted, uuid.uuid4().hex, read_uptime() + seconds, boot_id(), connection)
        if dry:
            return TrialResult(AGENTS_TABLE.plan(checked), "")
        if trial is not None:
            start_timer(trial.nonce, seconds)
            state.save(state.confirmed, trial)
    changes = _isolated_or_back(store, trial)
    return TrialResult(changes, trial.nonce if trial else "")


def confirm(store: Store, nonce: str, connection: str, *, unproven: bool) -> None:
    """Let a firewall stay that was tried; with ``unproven`` although nothing shows that managers get in.

    Raises :class:`ConfirmError`: the one before it holds then, or will soon."""
    with store.isolation_lock():
        state = FirewallState(store)
        trial = state.trial
        if trial is None or trial.nonce != nonce or trial.expired:
            raise ConfirmError(
                "firewall_confirm_timeout: the new rules were not confirmed in time, and the old ones hold"
            )
        if not unproven and not connection:
            raise ConfirmError(f"this connection is not one of SSH, {_UNPROVEN}")
        if not unproven and connection == trial.connection:
            raise ConfirmError(f"this connection is the one with which the new rules came, {_UNPROVEN}")
        state.save(trial.firewall, None)


def roll_back(store: Store, nonce: str) -> list[Change]:
    """End a trial that nobody has confirmed, and return what changed; another one, or none, is left alone."""
    ours = False
    with store.isolation_lock():
        state = FirewallState(store)
        if state.trial is not None and state.trial.nonce == nonce:
            state.save(state.confirmed, None)
            ours = True
    return sync_ruleset(store, dry=False, trial_over=ours)


def _isolated_or_back(store: Store, trial: Trial | None) -> list[Change]:
    try:
        return sync_ruleset(store, dry=False)
    except BaseException:
        if trial is not None:
            roll_back(store, trial.nonce)
        raise


# There where systemd runs the host (sd_booted(3)).
SYSTEMD = Path("/run/systemd/system")


def schedule_rollback(state_path: str, docker_host: str, nonce: str, seconds: int) -> None:
    """Withdraw the trial with that nonce in so many seconds, by a timer of systemd or else a process of its own.

    Once a trial is confirmed, its withdrawal does nothing. Raises :class:`NotProvisionedError` where the program is missing
    that does it, and :class:`subprocess.CalledProcessError` where systemd refuses.
    """
    if not PROGRAM.is_file():
        raise NotProvisionedError(f"{PROGRAM} is missing: apply the role backendai.cluster.firewall to this host.")
    command = [sys.executable, str(PROGRAM), "--state-path", state_path, "--docker-host", docker_host]
    command += ["--withdraw", nonce]
    if not SYSTEMD.is_dir():
        # None of the connection's own files: it would not end before they are closed.
        nothing = os.open(os.devnull, os.O_RDONLY)
        daemonize(lambda: _later(seconds, command), nothing)
        os.close(nothing)
        return
    timer = [f"--unit=backendai-firewall-{nonce[:8]}", f"--on-active={seconds}", "--timer-property=AccuracySec=100ms"]
    subprocess.run(["systemd-run", "--quiet", *timer, *command], check=True, capture_output=True, text=True)


def _later(seconds: int, command: list[str]) -> None:
    time.sleep(seconds)
    os.execv(command[0], command)
