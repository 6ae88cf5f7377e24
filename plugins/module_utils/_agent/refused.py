# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an agent refuses to do, for a reason that the operator can act upon."""

from __future__ import annotations


class Refused(Exception):
    """Nothing is wrong with the program; the message is one sentence."""
