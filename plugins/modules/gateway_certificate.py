#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Give a gateway its certificate."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_certificate
short_description: Give a gateway its certificate
version_added: 0.1.0
description:
  - Writes a certificate and its key into one file for root alone, as HAProxy reads them.
  - Without O(certificate_file), the gateway makes a key and signs a certificate for O(names) itself, which it keeps
    until the names change, or it is about to expire within 30 days.
  - A private key that is given travels in an option that is never shown. Have C(ansible_pipelining) on, so that it is
    in no temporary file.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes
attributes:
  action:
    description: Reads and checks the files on the control node.
    support: full
  check_mode:
    support: full
    details: A certificate that would be made has no fingerprint yet.
  diff_mode:
    support: full
    details: Shows names, end and fingerprint of certificates, never a key.
requirements:
  - python >= 3.9
  - cryptography
options:
  path:
    description: The file on the gateway. Its folder must exist.
    type: path
    required: true
  names:
    description: The host names and addresses that a certificate made here is for, that of the gateway first.
    type: list
    elements: str
    required: true
  certificate_file:
    description: The file on the control node that holds a certificate in PEM form, with those of its issuers after it.
    type: path
    default: ""
  key_file:
    description: The file on the control node that holds its private key in PEM form, without a passphrase.
    type: path
    default: ""
  certificate:
    description: What O(certificate_file) holds, which the action fills in.
    type: str
    default: ""
  key:
    description: What O(key_file) holds, which the action fills in.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Have the gateway make a certificate
  backendai.cluster.gateway_certificate:
    path: /etc/backendai/gateway/certificate.pem
    names: [gateway.example.org, 192.0.2.7]

- name: Bring a certificate
  backendai.cluster.gateway_certificate:
    path: /etc/backendai/gateway/certificate.pem
    names: [gateway.example.org]
    certificate_file: files/gateway.pem
    key_file: files/gateway.key
"""

RETURN = r"""
certificate:
  description:
    - What the certificate says. RV(ignore:expires_at) is in seconds since the epoch; RV(ignore:own) is whether the
      gateway signed it itself; RV(ignore:fingerprint) is its SHA-256, V(null) where it would be made.
  returned: success
  type: dict
  sample:
    names: [gateway.example.org, 192.0.2.7]
    expires_at: 1826000000
    own: true
    fingerprint: "6b86b273ff34fce19d6b804eff5a3f57…"
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.certificate import install
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import as_diff
from ansible_collections.backendai.cluster.plugins.module_utils._module import finish


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "names": {"type": "list", "elements": "str", "required": True},
            "certificate_file": {"type": "path", "default": ""},
            "key_file": {"type": "path", "default": ""},
            "certificate": {"type": "str", "default": ""},
            "key": {"type": "str", "default": "", "no_log": True},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        params = module.params
        given = (params["certificate"], params["key"]) if params["certificate"] else None
        changes, facts = install(Path(params["path"]), params["names"], given, time.time(), dry=module.check_mode)
        made = given is None and bool(changes)
        shown = {**dataclasses.asdict(facts), **({"fingerprint": None} if made and module.check_mode else {})}
        return {"changed": bool(changes), "diff": as_diff(changes), "certificate": shown}

    finish(module, run)


if __name__ == "__main__":
    main()
