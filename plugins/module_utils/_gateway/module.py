# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What all modules that run on a gateway share: where its state is, and one place where failures end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.table import FirewallError
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.fault import GatewayFault

STATE_OPTION: dict[str, dict[str, Any]] = {"state_path": {"type": "path", "default": "/var/lib/backendai-gateway"}}


def finish(module: AnsibleModule, act: Callable[[], Mapping[str, Any]]) -> None:
    """Do the module's work and end it: with its result, or with one sentence for what went wrong."""
    try:
        result = act()
    except (GatewayFault, FirewallError, OSError, ValueError) as error:
        said = str(error)
        module.fail_json(msg=said if said.endswith((".", "?")) else f"{said}.")
    module.exit_json(**result)
