# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validates the public keys of users."""

from __future__ import annotations

from collections.abc import Sequence

from ansible.errors import AnsibleActionFail

from ..module_utils._model.validation import ValidationError


def check_public_keys(keys: Sequence[str]) -> None:
    """Raise :class:`ValidationError` for the first key that is no OpenSSH public key, or that has options before it."""
    if not keys:
        return
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    except ImportError as error:
        raise AnsibleActionFail(
            f"session_authorized_keys needs the Python package cryptography here ({error})."
        ) from None
    for index, key in enumerate(keys):
        try:
            load_ssh_public_key(key.encode())
        except (ValueError, UnsupportedAlgorithm):
            raise ValidationError(
                f"session_authorized_keys[{index}]: {key[:40]!r} is not an OpenSSH public key (ssh-ed25519 AAAA…)."
            ) from None
