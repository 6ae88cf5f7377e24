#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_certificate
short_description: Check the variables of a gateway, and give it its certificate
description:
  - "Internal: called by the roles of this collection."
  - Checks all variables of this host that begin with C(gateway_), which the role P(backendai.cluster.gateway#role)
    describes, and fails with one sentence for each that cannot be used. The files of C(gateway_certificate) and
    C(gateway_certificate_key), on the control node, are looked into. With O(state=validated), that is all, and the host
    is not asked.
  - With O(state=present), writes a certificate and its key into one file for root alone, as HAProxy reads them.
  - Without C(gateway_certificate), the gateway makes a key and signs a certificate for its names itself, which it keeps
    until the names change, or it is about to expire within 30 days.
  - A private key that is given travels in an option that is never shown. Have C(ansible_pipelining) on, so that it is
    in no temporary file.
extends_documentation_fragment:
  - backendai.cluster.attributes
attributes:
  action:
    description: Checks variables and files on the control node.
    support: full
  check_mode:
    details: A certificate that would be made has no fingerprint yet.
  diff_mode:
    details: Shows names, end and fingerprint of certificates, never a key.
requirements:
  - cryptography, also on the control node where a certificate is given
options:
  state:
    description: Whether to check variables and no more, or to have the certificate in its file too.
    type: str
    choices: [validated, present]
    default: present
  path:
    description: The file on the gateway. Its folder must exist. Required with O(state=present).
    type: path
  names:
    description:
      - The host names and addresses that a certificate made here is for, that of the gateway first, which the action
        fills in.
    type: list
    elements: str
  certificate:
    description: What the file of C(gateway_certificate) holds, which the action fills in.
    type: str
    default: ""
  key:
    description: What the file of C(gateway_certificate_key) holds, which the action fills in.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Check the variables of a gateway, and give it its certificate
  backendai.cluster.gateway_certificate:
"""

RETURN = "# Internal."

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
            # The action of the same name does what "validated" asks by itself.
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
        given = (params["certificate"], params["key"]) if params["certificate"] else None
        changes, facts = install_certificate(
            Path(params["path"]), params["names"], given, time.time(), dry=module.check_mode
        )
        made = given is None and bool(changes)
        shown = {**dataclasses.asdict(facts), **({"fingerprint": None} if made and module.check_mode else {})}
        return {"changed": bool(changes), "diff": as_diff(changes), "certificate": shown}

    run_module(module, run)


if __name__ == "__main__":
    main()
