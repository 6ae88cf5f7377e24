#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_key
short_description: Create the key that signs access tokens
version_added: 0.2.0
description:
  - Creates a P-256 key on the gateway if there is none, and returns the public key. Only root can read the private key,
    which M(backendai.cluster.session_token) has tokens signed with.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.attributes.group
  - backendai.cluster.options.gateway
attributes:
  check_mode:
    details: A key that would be created has no public key yet.
requirements:
  - cryptography
"""

EXAMPLES = r"""
- name: Create the key that signs tokens
  backendai.cluster.gateway_key:
"""

RETURN = r"""
public_key:
  description: The public key in PEM format; V(null) in check mode if it would be created.
  returned: success
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._gateway.store import GatewayStore
from ..module_utils._gateway.token import make_token_key, public_key
from ..module_utils._model.change import Change, as_diff
from ..module_utils._module import GATEWAY_OPTIONS, run_module


def main() -> None:
    module = AnsibleModule(argument_spec=GATEWAY_OPTIONS, supports_check_mode=True)
    run_module(module, lambda: ensure_key(module, GatewayStore(module.params["state_path"])))


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
