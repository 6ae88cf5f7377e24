#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write a token that opens a session."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_token
short_description: Write a token that opens a session
version_added: 0.1.0
description:
  - Has a gateway sign a token that opens one session on every gateway of the group until it expires, and writes it to a
    file on the control node for its owner alone.
  - The token is never shown, nor in the result. With C(-vvv), the gateway's answer is not printed; C(ANSIBLE_DEBUG)
    prints it, as it does for any task with C(no_log).
  - A token cannot be taken back. It ends when it expires, when its session does, or when the gateway has another key.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.attributes.group
  - backendai.cluster.gateway
attributes:
  action:
    description: Takes the token out of the gateway's answer, and writes the file.
    support: full
  check_mode:
    support: full
    details: Nothing is signed, and nothing written.
  diff_mode:
    support: none
    details: The token is all that it makes.
requirements:
  - cryptography
options:
  name:
    description: The name of the session; this or O(session_id) is required.
    type: str
    default: ""
  session_id:
    description: The id of the session.
    type: str
    default: ""
  ttl:
    description: For how many seconds the token opens the session, from 60 to 2592000.
    type: int
    default: 3600
  path:
    description: The file to write, on the control node. It holds the token and the end of a line.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Write a token for an hour
  backendai.cluster.session_token:
    name: train-llm
    path: train-llm.token
"""

RETURN = r"""
session:
  description: The id and the name of the session.
  returned: success
  type: dict
  sample: {id: 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a, name: train-llm}
links:
  description: Where users find the session, as in M(backendai.cluster.gateway_routes).
  returned: success
  type: dict
  sample:
    id: 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a
    name: train-llm
    ssh: {host: gateway.example.org, port: 31417}
    apps: [{name: jupyter, protocol: http, url: "https://gateway.example.org/s/train-llm/jupyter/"}]
expires_at:
  description: When the token expires, in seconds since the epoch.
  returned: success
  type: int
  sample: 1772337597
path:
  description: The file with the token.
  returned: success
  type: str
  sample: /home/ada/train-llm.token
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.store import GatewayStore
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.token import issue_token
from ansible_collections.backendai.cluster.plugins.module_utils._module import GATEWAY_OPTIONS, finish


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **GATEWAY_OPTIONS,
            "name": {"type": "str", "default": ""},
            "session_id": {"type": "str", "default": ""},
            "ttl": {"type": "int", "default": 3600},
            "path": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        params = module.params
        asked = params["name"], params["session_id"], params["ttl"]
        return {"changed": True, **issue_token(GatewayStore(params["state_path"]), *asked, dry=module.check_mode)}

    finish(module, run)


if __name__ == "__main__":
    main()
