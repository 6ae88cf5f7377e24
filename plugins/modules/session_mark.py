#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Leave a mark in the mounts of a session, look for it, or remove it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_mark
short_description: Find out whether the containers of a session see the same data in its mounts
version_added: 0.1.0
description:
  - On the agent of C(main1), a mark is left in each mount that user C(work) may write to, and removed again. It is an
    empty file whose name begins with C(.backendai-verify-). On every agent, each container that runs there looks for
    it.
  - The mark is gone when the run is over, so it counts as no change.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.agent
  - backendai.cluster.attributes
  - backendai.cluster.attributes.group
attributes:
  check_mode:
    support: full
    details: No mark is left, so there is none to be seen.
  diff_mode:
    support: none
    details: Nothing stays changed.
options:
  session_id:
    description: The session.
    type: str
    required: true
  mark:
    description: What tells this mark from others; letters, digits and dashes.
    type: str
    required: true
  act:
    description: What to do.
    type: str
    choices: [leave, look, remove]
    required: true
"""

EXAMPLES = r"""
- name: Leave a mark where main1 sees it
  backendai.cluster.session_mark:
    session_id: 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a
    mark: 2c4e0d7a
    act: leave
"""

RETURN = r"""
left:
  description: The targets of the mounts that have the mark now.
  returned: when O(act=leave)
  type: list
  elements: str
seen:
  description:
    - What each container sees of each mount, by hostname and target - whether the mark is there, the device and inode
      of the top folder, and a digest of the names in it. The last two are V(-) where user C(work) cannot read them.
  returned: when O(act=look)
  type: dict
  sample: {main1: {/home/work/data: {mark: true, folder: "2049:131", names: 01ba4719c80b6fe9}}}
stays:
  description: The targets of the mounts from which the mark could not be removed.
  returned: when O(act=remove)
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import ClusterError
from ansible_collections.backendai.cluster.plugins.module_utils._module import CONNECTION_OPTIONS, finish
from ansible_collections.backendai.cluster.plugins.module_utils._session.mount_markers import leave, look, remove


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **CONNECTION_OPTIONS,
            "session_id": {"type": "str", "required": True},
            "mark": {"type": "str", "required": True},
            "act": {"type": "str", "choices": ["leave", "look", "remove"], "required": True},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        params = module.params
        held = Store(params["state_path"]).session(params["session_id"])
        if held is None:
            raise ClusterError(f"the session {params['session_id']} is not on this agent")
        client, mark = connect(params["docker_host"]), params["mark"]
        if params["act"] == "look":
            return {"changed": False, "seen": look(client, held.plan, mark)}
        if params["act"] == "leave":
            return {"changed": False, "left": [] if module.check_mode else leave(client, held.plan, mark)}
        return {"changed": False, "stays": [] if module.check_mode else remove(client, held.plan, mark)}

    finish(module, run)


if __name__ == "__main__":
    main()
