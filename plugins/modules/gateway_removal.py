#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_removal
short_description: Look for routes of a gateway that is to be given back
description:
  - "Internal: called by the roles of this collection."
  - Fails if the gateway has routes to sessions, unless O(close_routes). Changes nothing.
extends_documentation_fragment:
  - backendai.cluster.attributes
options:
  state_path:
    description: The folder of the gateway's state. It may be missing.
    type: path
    default: /var/lib/backendai-gateway
  close_routes:
    description: Whether routes are to be closed, and so no reason to fail.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Check that the gateway has no routes
  backendai.cluster.gateway_removal:
"""

RETURN = r"""
sessions: {type: list, elements: str, returned: success, description: The names of the sessions that have routes.}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._gateway.store import GatewayStore
from ..module_utils._model.errors import ClusterError
from ..module_utils._module import GATEWAY_OPTIONS, run_module


def main() -> None:
    module = AnsibleModule(
        argument_spec={**GATEWAY_OPTIONS, "close_routes": {"type": "bool", "default": False}}, supports_check_mode=True
    )

    def run() -> dict[str, Any]:
        readable, damaged = GatewayStore(module.params["state_path"]).routes()
        sessions = sorted([*(route.name for route in readable.values()), *damaged])
        if sessions and not module.params["close_routes"]:
            raise ClusterError(
                f"this gateway has routes to {', '.join(sessions)}: end these sessions with"
                " backendai.cluster.terminate_session, or run this playbook with -e remove_routes=true; then they go"
                " on, and are not reached through this gateway any more"
            )
        return {"changed": False, "sessions": sessions}

    run_module(module, run)


if __name__ == "__main__":
    main()
