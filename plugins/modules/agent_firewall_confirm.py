#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Let new firewall rules of a host stay: whoever says so has come in through them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: agent_firewall_confirm
short_description: Let new firewall rules of a host stay
version_added: 0.1.0
description:
  - Ends the trial that M(backendai.cluster.agent_firewall) began. It has to come over another SSH connection than that
    one, which proves that the operator is not locked out; C(meta=reset_connection) sees to it.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.attributes
attributes:
  check_mode:
    support: full
    details: Nothing is on trial in check mode.
  diff_mode:
    support: none
    details: The rules are those that are tried.
requirements:
  - python >= 3.9
options:
  state_path:
    description: The folder that holds what the host remembers.
    type: path
    default: /var/lib/backendai
  nonce:
    description: What the trial gave.
    type: str
    required: true
  unproven:
    description:
      - Whether to confirm although this is no new SSH connection, such as from a console. Nothing shows then that
        anybody gets in.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Come in anew
  ansible.builtin.meta: reset_connection

- name: Let the rules stay
  backendai.cluster.agent_firewall_confirm:
    nonce: "{{ tried.nonce }}"
"""

RETURN = r"""
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._firewall.trial import confirm
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._module import CONNECTION_OPTIONS, finish
from ansible_collections.backendai.cluster.plugins.module_utils._network.ssh_connection import ssh_connection


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state_path": CONNECTION_OPTIONS["state_path"],
            "nonce": {"type": "str", "required": True},
            "unproven": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        params = module.params
        if not module.check_mode:
            confirm(Store(params["state_path"]), params["nonce"], ssh_connection(), unproven=params["unproven"])
        return {"changed": False}

    finish(module, run)


if __name__ == "__main__":
    main()
