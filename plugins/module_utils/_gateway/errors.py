# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What may go wrong on a gateway although nothing is wrong with the program."""

from __future__ import annotations

from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import ClusterError


class GatewayFault(ClusterError):
    """The gateway is not as it should be, or cannot do what is asked; the message is one sentence for the operator."""
