# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Manages the key pair of an agent's WireGuard device. The private key is created here, never leaves and is never read.

An underlay that sessions use is not changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from .._host.store import Store
from .._model.change import Change
from .._model.errors import ClusterError
from .._model.files import write_atomically
from .._model.network import Underlay
from .._network.host import find_underlay
from .mesh import wireguard_underlay

PRIVATE, PUBLIC = "private", "public"


def read_public_key(folder: Path) -> str:
    """Return the public key in ``folder``; empty if there is none."""
    public = folder / PUBLIC
    return public.read_text().strip() if public.exists() else ""


def make_wireguard_key(folder: Path) -> str:
    """Make a pair in ``folder``, which is for root alone, and return its public half.

    The public key is written last: if it is missing, the creation of the pair was interrupted. Raises
    :class:`subprocess.CalledProcessError` when ``wg`` fails.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    private = folder / PRIVATE
    with open(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        subprocess.run(["wg", "genkey"], check=True, stdout=stream, stderr=subprocess.PIPE, text=True)
    with open(private, "rb") as stream:
        result = subprocess.run(["wg", "pubkey"], check=True, stdin=stream, capture_output=True, text=True)
    write_atomically(folder / PUBLIC, result.stdout)
    return result.stdout.strip()


class UnderlayInUseError(ClusterError):
    """Sessions use the present underlay. The message is one sentence."""


class DesiredEncryption(NamedTuple):
    """The settings of the inventory: ``encryption``, empty or ``wireguard``, its UDP port, and the plain address."""

    encryption: str
    port: int
    address: str


def ensure_key(store: Store, settings: DesiredEncryption, *, check_mode: bool) -> tuple[list[Change], Underlay | None]:
    """Create or remove the key; return what changed, and the desired underlay of the device.

    ``None``: no device is desired, or, with ``check_mode``, there is no key yet. Raises :class:`UnderlayInUseError` if
    sessions here use what would change, and :class:`ValueError` for an underlay address that no interface has.
    """
    folder = store.wireguard_folder
    with store.lock():
        public_key = read_public_key(folder)
        if not settings.encryption:
            _refuse_if_in_use(store, settings, None)
            exists = folder.exists()
            if exists and not check_mode:
                shutil.rmtree(folder)
            return [Change("wireguard key", "present", None)] if exists else [], None
        plain = find_underlay(settings.address)
        if plain is None:
            address = settings.address or "a usable address"
            raise ValueError(f"agent_underlay_address: no interface of this host has {address}")
        desired = wireguard_underlay(plain, public_key, settings.port) if public_key else None
        _refuse_if_in_use(store, settings, desired)
        if desired:
            return [], desired
        created = [Change("wireguard key", None, "created by the agent")]
        return created, None if check_mode else wireguard_underlay(plain, make_wireguard_key(folder), settings.port)


def _refuse_if_in_use(store: Store, settings: DesiredEncryption, desired: Underlay | None) -> None:
    """Raise :class:`UnderlayInUseError` if sessions use another underlay of this agent: all their agents have it."""
    underlays = [(session.plan.name, session.plan.underlays.get(session.agent)) for session in store.sessions()]
    names = sorted(name for name, underlay in underlays if underlay and underlay.public_key and underlay != desired)
    if names:
        now = f"{settings.encryption!r} with another key, port, address or MTU" if settings.encryption else "''"
        raise UnderlayInUseError(
            f"agent_underlay_encryption: {now} would cut off {', '.join(names)}; terminate those sessions first"
        )
