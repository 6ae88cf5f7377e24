# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands of systemd units on a host: restore sessions, apply rules, roll back a firewall, remove homes."""

from __future__ import annotations

import argparse
import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .._docker.client import DockerUnavailableError, connect
from .._firewall.foreign import withdraw
from .._firewall.state import FirewallState
from .._firewall.sync import sync_ruleset
from .._firewall.trial import roll_back
from .._host.home_removal import remove_retired
from .._host.store import Store
from .._model.errors import EXPECTED, reason
from .._model.quantity import parse_bytes
from .._session.reconcile import restore
from .journal import log

if TYPE_CHECKING:
    import docker

ENGINE_SECONDS = 60
"""How long the engine may take to answer after systemd reported it as started."""


def _connect(docker_host: str, seconds: float) -> docker.APIClient:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(DockerUnavailableError):
            return connect(docker_host)
        time.sleep(0.2)
    return connect(docker_host)


def _asked_once(docker_host: str, seconds: float) -> Callable[[], docker.APIClient]:
    """Return what connects to the engine, once: one that hangs would cost each session as long as the first."""

    @functools.cache
    def attempt() -> docker.APIClient | DockerUnavailableError:
        try:
            return _connect(docker_host, seconds)
        except DockerUnavailableError as error:
            return error

    def engine() -> docker.APIClient:
        found = attempt()
        if isinstance(found, DockerUnavailableError):
            raise found
        return found

    return engine


def main(arguments: Sequence[str]) -> int:
    """Run the program; changes and failures are written to the journal."""
    parser = argparse.ArgumentParser(prog="backendai-agent", description=__doc__)
    parser.add_argument("--state-path", required=True)
    parser.add_argument("--docker-host", required=True)
    parser.add_argument("--start", action="store_true", help="also start containers, not only restore links and rules")
    parser.add_argument("--rules", action="store_true", help="apply the rules and nothing else")
    parser.add_argument("--remove-homes", metavar="RESERVE", help="remove the homes of ended sessions")
    parser.add_argument("--withdraw", metavar="NONCE", help="roll back a firewall that was not confirmed")
    options = parser.parse_args(arguments)
    store = Store(options.state_path)
    engine = _asked_once(options.docker_host, ENGINE_SECONDS if options.start else 0)
    failures: list[str] = []
    try:
        if options.withdraw:
            changes = roll_back(store, options.withdraw)
            failures += filter(None, [FirewallState(store).damage])
        elif options.remove_homes:
            changes, failures = [], remove_retired(store.homes, parse_bytes(options.remove_homes))
        elif options.rules:
            changes = sync_ruleset(store, check_mode=False)
            failures += filter(None, [FirewallState(store).damage])
        else:
            changes, failures = restore(store, engine, start=options.start)
    except EXPECTED as error:
        changes, failures = [], [reason(error)]
    # Whatever has become of our own rules.
    try:
        changes = [*changes, *withdraw(store)]
    except EXPECTED as error:
        failures = [*failures, reason(error)]
    return log(changes, failures)
