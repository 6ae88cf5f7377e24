# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many hosts Ansible works on at the same time."""

from __future__ import annotations

from ansible import constants, context


def forks() -> int:
    """Return the number of forks from the command line, or else the configuration."""
    return int(context.CLIARGS.get("forks") or constants.DEFAULT_FORKS)
