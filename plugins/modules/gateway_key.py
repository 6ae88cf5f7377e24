#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make the key with which a gateway signs tokens."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_key
short_description: Make the key with which a gateway signs tokens
version_added: 0.1.0
description:
  - "Internal: called by the roles of this collection."
  - Makes a P-256 key on the gateway, where there is none yet, and returns its public half. The private half stays in a
    file for root alone.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.gateway
attributes:
  check_mode:
    support: full
    details: A key that would be made has no public half yet.
  diff_mode:
    support: full
requirements:
  - cryptography
"""

EXAMPLES = r"""
- name: Make the key with which this gateway signs tokens
  backendai.cluster.gateway_key:
  register: __gateway_key
"""

RETURN = r"""
public_key:
  description: The public half in PEM form, V(null) where it would be made.
  returned: success
  type: str
  sample: |
    -----BEGIN PUBLIC KEY-----
    MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE…
    -----END PUBLIC KEY-----
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.store import GatewayStore
from ansible_collections.backendai.cluster.plugins.module_utils._gateway.token import make_key, public_key
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change, as_diff
from ansible_collections.backendai.cluster.plugins.module_utils._module import GATEWAY_OPTIONS, finish


def main() -> None:
    module = AnsibleModule(argument_spec=GATEWAY_OPTIONS, supports_check_mode=True)

    def run() -> dict[str, Any]:
        store = GatewayStore(module.params["state_path"])
        with store.lock():
            missing = not store.key.exists()
            if missing and not module.check_mode:
                make_key(store.key)
            public = public_key(store.key) if store.key.exists() else None
        changes = [Change(f"key {store.key}", None, "made")] if missing else []
        return {"changed": missing, "diff": as_diff(changes), "public_key": public}

    finish(module, run)


if __name__ == "__main__":
    main()
