#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start the command of a batch session."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_command
short_description: Start the command of a batch session
version_added: 0.1.0
description:
  - The command of a batch session waits, in main1 or in all containers, until the whole session has proven itself. This
    module lets it run in those of this agent; where none of them runs it, it changes nothing.
  - A command is started once. Its output is the container's log, its exit code the container's.
  - The image's C(bash), or else its C(sh), runs the command as user C(work), in C(/home/work). When the container is
    stopped, that shell gets SIGTERM; a program that wants it itself is started with C(exec).
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.agent
  - backendai.cluster.attributes
  - backendai.cluster.attributes.group
attributes:
  check_mode:
    support: full
    details: The session must be there and committed in check mode, too.
  diff_mode:
    support: full
options:
  session_id:
    description: The session.
    type: str
    required: true
  nonce:
    description: The nonce of this run. The session must be committed, so that this run may start its command.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Start the command
  backendai.cluster.session_command:
    session_id: "{{ planned.plan.id }}"
    nonce: "{{ planned.nonce }}"
"""

RETURN = r"""
diff:
  description: What changed, a line for each thing.
  returned: success
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import as_diff
from ansible_collections.backendai.cluster.plugins.module_utils._module import CONNECTION_OPTIONS, finish
from ansible_collections.backendai.cluster.plugins.module_utils._session.command import start_command


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **CONNECTION_OPTIONS,
            "session_id": {"type": "str", "required": True},
            "nonce": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        params, store = module.params, Store(module.params["state_path"])
        changes = start_command(store, params["session_id"], params["nonce"], dry=module.check_mode)
        return {"changed": bool(changes), "diff": as_diff(changes)}

    finish(module, run)


if __name__ == "__main__":
    main()
