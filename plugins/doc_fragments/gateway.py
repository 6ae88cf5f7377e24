# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that modules on a gateway share."""

from __future__ import annotations


class ModuleDocFragment:
    """Where the gateway's state is."""

    DOCUMENTATION = r"""
options:
  state_path:
    description:
      - The folder that holds what the gateway remembers. The role P(backendai.cluster.gateway#role) makes it.
    type: path
    default: /var/lib/backendai-gateway
"""
