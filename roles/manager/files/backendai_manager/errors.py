# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a command ends without having done what it was asked for: one sentence each."""

from __future__ import annotations


class CommandError(Exception):
    """What was tried has failed. The message is one sentence, or one in each line."""

    status = "failed"


class RefusedError(CommandError):
    """The request is not valid, or not allowed. Nothing has been changed."""

    status = "refused"


class CancelledError(CommandError):
    """The user's part is gone, or has asked to stop."""
