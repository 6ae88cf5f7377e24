# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the commands of systemd units write to the journal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from .._model.change import Change
from .._model.errors import one_line


def log(changes: Iterable[Change], failures: Sequence[str]) -> int:
    """Write changes and failures, sentences, in a line each with its priority; return the exit code of the command."""
    for change in changes:
        text = one_line(f"{change.subject}: {change.before or 'missing'} -> {change.after or 'removed'}")
        sys.stdout.write(f"<5>{text}\n")
    for failure in failures:
        sys.stderr.write(f"<3>{one_line(failure)}\n")
    return 1 if failures else 0
