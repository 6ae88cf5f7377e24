#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_token
short_description: Write a token that opens a session, or make the key that signs it
version_added: 0.1.0
description:
  - With O(state=issued), has a gateway sign a token that opens one session on every gateway of the group until it
    expires, and writes it to a file on the control node for its owner alone.
  - The token is never shown, nor in the result. With C(-vvv), the gateway's answer is not printed; C(ANSIBLE_DEBUG)
    prints it, as it does for any task with C(no_log).
  - A token cannot be taken back. It ends when it expires, when its session does, or when the gateway has another key.
  - With O(state=ready), makes a P-256 key on the gateway, where there is none yet, and returns its public half. The
    private half stays in a file for root alone. The role P(backendai.cluster.gateway#role) does that.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.attributes.group
  - backendai.cluster.options.gateway
attributes:
  action:
    description: Takes the token out of the gateway's answer, and writes the file.
    support: full
  check_mode:
    details: Nothing is signed, and nothing written; a key that would be made has no public half yet.
  diff_mode:
    support: partial
    details: Shows that a key is made. With O(state=issued), the token is all that it makes.
requirements:
  - cryptography
options:
  state:
    description: Whether to write a token, or to have the key that signs tokens.
    type: str
    choices: [issued, ready]
    default: issued
  name:
    description: The name of the session; this or O(session_id) is required with O(state=issued).
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
    description:
      - The file to write, on the control node. It holds the token and the end of a line. Required with O(state=issued).
    type: path
"""

EXAMPLES = r"""
- name: Write a token for an hour
  backendai.cluster.gateway_token:
    name: train-llm
    path: train-llm.token

- name: Make the key with which this gateway signs tokens
  backendai.cluster.gateway_token:
    state: ready
"""

RETURN = r"""
session:
  description: The id and the name of the session.
  returned: with O(state=issued)
  type: dict
  sample: {id: 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a, name: train-llm}
links:
  description: Where users find the session, as in M(backendai.cluster.gateway_routes).
  returned: with O(state=issued)
  type: dict
expires_at:
  description: When the token expires, in seconds since the epoch.
  returned: with O(state=issued)
  type: int
  sample: 1772337597
path:
  description: The file with the token.
  returned: with O(state=issued)
  type: str
  sample: /home/ada/train-llm.token
public_key:
  description: The public half of the key in PEM form, V(null) where it would be made.
  returned: with O(state=ready)
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._gateway.store import GatewayStore
from ..module_utils._gateway.token import issue_token, make_token_key, public_key
from ..module_utils._model.change import Change, as_diff
from ..module_utils._module import GATEWAY_OPTIONS, run_module


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **GATEWAY_OPTIONS,
            "state": {"type": "str", "choices": ["issued", "ready"], "default": "issued"},
            "name": {"type": "str", "default": ""},
            "session_id": {"type": "str", "default": ""},
            "ttl": {"type": "int", "default": 3600},
            "path": {"type": "path"},
        },
        required_if=[("state", "issued", ["path"])],
        supports_check_mode=True,
    )
    store = GatewayStore(module.params["state_path"])
    act = issue if module.params["state"] == "issued" else have_key
    run_module(module, lambda: act(module, store))


def issue(module: AnsibleModule, store: GatewayStore) -> dict[str, Any]:
    """Sign a token; the action of the same name takes it out of the result."""
    asked = module.params["name"], module.params["session_id"], module.params["ttl"]
    return {"changed": True, **issue_token(store, *asked, dry=module.check_mode)}


def have_key(module: AnsibleModule, store: GatewayStore) -> dict[str, Any]:
    """Make the key where there is none, and return its public half."""
    with store.lock():
        missing = not store.key.exists()
        if missing and not module.check_mode:
            make_token_key(store.key)
        public = public_key(store.key) if store.key.exists() else None
    changes = [Change(f"key {store.key}", None, "made")] if missing else []
    return {"changed": missing, "diff": as_diff(changes), "public_key": public}


if __name__ == "__main__":
    main()
