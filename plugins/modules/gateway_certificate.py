#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_certificate
short_description: Validate the options of a gateway and install its certificate
description:
  - "Internal: called by the roles of this collection."
  - Validates all variables of this host that begin with C(gateway_), which the role P(backendai.cluster.gateway#role)
    describes, and fails with one message for each that is invalid. This includes the files of C(gateway_certificate)
    and C(gateway_certificate_key) on the control node. With O(state=validated), the host is not contacted.
  - With O(state=present), writes the certificate and its key into one file that only root can read, for HAProxy.
  - Without C(gateway_certificate), the gateway creates a key and a self-signed certificate for its names. It is
    replaced when the names change, or 30 days before it expires.
  - A given private key is passed in an option that is never shown. Enable C(ansible_pipelining), so that it is not
    written to a temporary file.
extends_documentation_fragment:
  - backendai.cluster.attributes
attributes:
  action:
    description: Validates variables and files on the control node.
    support: full
  check_mode:
    details: A certificate that would be created has no fingerprint yet.
  diff_mode:
    details: Shows names, expiry and fingerprint of certificates, never a key.
requirements:
  - cryptography, also on the control node if a certificate is given
options:
  state:
    description: Whether to only validate the variables, or to install the certificate, too.
    type: str
    choices: [validated, present]
    default: present
  path:
    description: The file on the gateway. Its folder must exist. Required with O(state=present).
    type: path
  names:
    description:
      - The host names and addresses for a self-signed certificate, that of the gateway first; set by the action.
    type: list
    elements: str
  certificate:
    description: The content of the file of C(gateway_certificate); set by the action.
    type: str
    default: ""
  key:
    description: The content of the file of C(gateway_certificate_key); set by the action.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Validate the options of a gateway and install its certificate
  backendai.cluster.gateway_certificate:
"""

RETURN = r"""
gateway: {type: dict, returned: with O(state=validated), description: The public name and the ports of the gateway.}
certificate: {type: dict, returned: with O(state=present),
  description: "The names, the expiry and the fingerprint of the certificate."}
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._gateway.certificate import install_certificate
from ..module_utils._model.change import as_diff
from ..module_utils._module import run_module


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            # With "validated", the action of the same name does not run this module.
            "state": {"type": "str", "choices": ["validated", "present"], "default": "present"},
            "path": {"type": "path"},
            "names": {"type": "list", "elements": "str"},
            "certificate": {"type": "str", "default": ""},
            "key": {"type": "str", "default": "", "no_log": True},
        },
        required_if=[("state", "present", ["path", "names"])],
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        params = module.params
        certificate = (params["certificate"], params["key"]) if params["certificate"] else None
        changes, facts = install_certificate(
            Path(params["path"]), params["names"], certificate, time.time(), check_mode=module.check_mode
        )
        created = certificate is None and bool(changes)
        shown = {**dataclasses.asdict(facts), **({"fingerprint": None} if created and module.check_mode else {})}
        return {"changed": bool(changes), "diff": as_diff(changes), "certificate": shown}

    run_module(module, run)


if __name__ == "__main__":
    main()
