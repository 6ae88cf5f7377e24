#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_token
short_description: Issue an access token for a session, or create the signing key
version_added: 0.1.0
description:
  - With O(state=issued), signs a token on a gateway and writes it to a file on the control node that only its owner can
    read. The token gives access to one session on every gateway of the group until it expires.
  - One link for each app of the session is printed, with the token in it. It opens the app in a browser until the token
    expires.
  - The token is not in the result, nor in Ansible's log, and nothing else shows it, not even C(-vvv); only
    C(ANSIBLE_DEBUG) does, as it does for any task with C(no_log).
  - A token cannot be revoked. It is valid until it expires, its session ends, or the key of the gateway changes.
  - With O(state=ready), creates a P-256 key on the gateway if there is none, and returns the public key. Only root can
    read the private key. The role P(backendai.cluster.gateway#role) does that.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.attributes.group
  - backendai.cluster.options.gateway
attributes:
  action:
    description: Removes the token from the gateway's result and writes the file.
    support: full
  check_mode:
    details: Nothing is signed or written; a key that would be created has no public key yet.
  diff_mode:
    support: partial
    details: Shows that a key is created; nothing with O(state=issued).
requirements:
  - cryptography
options:
  state:
    description: Whether to issue a token, or to create the key that signs tokens.
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
    description: The lifetime of the token in seconds, 60 to 2592000.
    type: int
    default: 3600
  path:
    description:
      - The file on the control node for the token, which is followed by a newline. Required with O(state=issued).
      - With a name that ends in C(.json), it is a mapping with C(token), C(session), C(links) and C(expires_at).
    type: path
"""

EXAMPLES = r"""
- name: Write a token that is valid for an hour
  backendai.cluster.gateway_token:
    name: train-llm
    path: train-llm.token

- name: Create the key that signs tokens
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
  description: The access points of the session, as in M(backendai.cluster.gateway_routes).
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
  description: The public key in PEM format; V(null) in check mode if it would be created.
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
    act = issue if module.params["state"] == "issued" else ensure_key
    run_module(module, lambda: act(module, store))


def issue(module: AnsibleModule, store: GatewayStore) -> dict[str, Any]:
    """Sign a token; the action of the same name removes it from the result."""
    arguments = module.params["name"], module.params["session_id"], module.params["ttl"]
    return {"changed": True, **issue_token(store, *arguments, check_mode=module.check_mode)}


def ensure_key(module: AnsibleModule, store: GatewayStore) -> dict[str, Any]:
    """Create the key if there is none, and return the public key."""
    with store.lock():
        missing = not store.key.exists()
        if missing and not module.check_mode:
            make_token_key(store.key)
        public = public_key(store.key) if store.key.exists() else None
    changes = [Change(f"key {store.key}", None, "created")] if missing else []
    return {"changed": missing, "diff": as_diff(changes), "public_key": public}


if __name__ == "__main__":
    main()
