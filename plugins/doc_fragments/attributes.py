# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Author, and behaviour in check and diff mode, of modules and actions."""

    # A module that runs on a host.
    DOCUMENTATION = r"""
author:
  - backendai.cluster contributors (!UNKNOWN)
requirements:
  - python >= 3.9
attributes:
  check_mode:
    description: Can run in C(check_mode) and return changed status without changing anything.
    support: full
  diff_mode:
    description: Returns what would change, or has changed, when in C(diff_mode).
    support: full
  platform:
    description: Hosts that the module runs on.
    platforms: linux
    support: full
"""

    # An action that calls the agent program on the host; the module is documentation only.
    PROGRAM = r"""
attributes:
  action:
    description: Sends the request to the program on the host.
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

    # An action that runs on the control node; the module is documentation only.
    CONTROL = r"""
author:
  - backendai.cluster contributors (!UNKNOWN)
attributes:
  action:
    description: Runs on the control node; nothing is sent to the host.
    support: full
  check_mode:
    description: Can run in C(check_mode) and return changed status without changing anything.
    support: full
  diff_mode:
    description: Returns what would change, or has changed, when in C(diff_mode).
    support: none
    details: Only reports and the queue are written.
"""

    # An action that runs on the control node and asks all agents itself; the module is documentation only.
    AGENTS = r"""
author:
  - backendai.cluster contributors (!UNKNOWN)
attributes:
  action:
    description: Runs on the control node, and asks the programs on all agents itself.
    support: full
  async:
    description: Can run in the background, with C(async).
    support: none
    details: Put it into a playbook of its own and run that in the background.
  check_mode:
    description: Can run in C(check_mode) and return changed status without changing anything.
    support: full
    details: No file is written.
  diff_mode:
    description: Returns what would change, or has changed, when in C(diff_mode).
    support: none
    details: The module never changes anything but its report files.
"""
