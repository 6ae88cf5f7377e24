# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How our modules and actions behave in check and diff mode."""

from __future__ import annotations


class ModuleDocFragment:
    """Attributes of modules."""

    # A module that runs on an agent.
    DOCUMENTATION = r"""
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status without changing anything.
  diff_mode:
    description: Returns what would change, or has changed, when in C(diff_mode).
  platform:
    description: Hosts that the module runs on.
    platforms: linux
    support: full
"""

    # A member of the action group for C(module_defaults).
    GROUP = r"""
attributes:
  action_group:
    description: Use C(group/backendai.cluster.session) in C(module_defaults) to set defaults for this module.
    support: full
    membership:
      - backendai.cluster.session
"""

    # An action that runs on the control node.
    CONTROL = r"""
attributes:
  action:
    description: Runs on the control node; nothing is sent to the host.
    support: full
  check_mode:
    description: Can run in C(check_mode) and return changed status without changing anything.
  diff_mode:
    description: Returns what would change, or has changed, when in C(diff_mode).
"""
