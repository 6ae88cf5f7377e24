# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A difference between the current and the desired state: the unit of diffs and check mode."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Change(NamedTuple):
    """A change of ``subject`` from ``before`` to ``after``; ``None`` means absent.

    Neither text may contain a secret: both are shown with ``--diff`` and written to logs.
    """

    subject: str
    before: str | None
    after: str | None


def as_diff(changes: Iterable[Change]) -> dict[str, str]:
    """Return changes in the format of Ansible's ``diff``: two texts with one line for each subject."""
    listed = list(changes)
    return {
        "before": "".join(f"{change.subject}: {change.before}\n" for change in listed if change.before is not None),
        "after": "".join(f"{change.subject}: {change.after}\n" for change in listed if change.after is not None),
    }
