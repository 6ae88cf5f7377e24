# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of the manager's part, as the role ``manager`` writes them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from ..errors import CommandError
from ..files import read_regular_file

VERSION = 1
MAX_SETTINGS = 1 << 16


@dataclasses.dataclass(frozen=True)
class Settings:
    """Where inventory, policy and queue are, the groups of users and operators, and how much runs at once.

    Sessions of an owner who is gone end after ``orphan_after`` seconds; 0 for never.
    """

    inventory: str
    policy: str
    queue: str
    users_group: str
    operators_group: str
    runs_per_user: int
    runs: int
    orphan_after: int


def load_settings(path: Path) -> Settings:
    """Read the settings. Raises :class:`CommandError`."""
    try:
        data = json.loads(read_regular_file(path, MAX_SETTINGS))
        if data.pop("version") != VERSION:
            raise ValueError("it is of another release")
        kinds = {field.name: {"str": str, "int": int}[str(field.type)] for field in dataclasses.fields(Settings)}
        if not all(_is_of(kind, data.get(name)) for name, kind in kinds.items()):
            raise ValueError("a setting is missing, or has another type")
        return Settings(**{name: data[name] for name in kinds})
    except OSError as error:
        reason = error.strerror or type(error).__name__
    except (json.JSONDecodeError, UnicodeDecodeError, LookupError, AttributeError, TypeError):
        reason = "it is damaged"
    except ValueError as error:
        reason = str(error)
    raise CommandError(f"{path} cannot be used: {reason}; run backendai.cluster.provision_managers.")


def _is_of(kind: type, value: object) -> bool:
    """Return whether a value is text, or a number; a truth value is no number."""
    return isinstance(value, kind) and not isinstance(value, bool)
