#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""End or restart what died on an agent."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_reap
short_description: End or restart what died on an agent
version_added: 0.1.0
description:
  - One call does on this agent all that is due about its sessions. Some go altogether, of others the containers that
    died are started again, and claims that their runs gave up are removed.
  - What fails for one session does not stop the others, and does not fail the module.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.agent
  - backendai.cluster.attributes
  - backendai.cluster.attributes.group
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  end:
    description: The ids of sessions whose slice goes away, whatever its state.
    type: list
    elements: str
    default: []
  restart:
    description:
      - The ids of sessions whose containers on this agent are started again where they do not run, with the same names,
        addresses and keys. The session's tunnel is repaired first.
      - A container that was removed cannot be restarted. In a batch session, main1 is left as it ended.
    type: list
    elements: str
    default: []
  expired:
    description: Whether slices go away that were claimed, and not committed in time.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Do what is due on this agent
  backendai.cluster.session_reap:
    end: "{{ due.end[inventory_hostname] | default([]) }}"
    restart: "{{ due.restart[inventory_hostname] | default([]) }}"
"""

RETURN = r"""
failures:
  description:
    - A sentence for each session that something could not be done for, by its id.
    - V(expired) in place of an id says why the claims could not be read.
  returned: success
  type: dict
  sample:
    5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a: sub1 was removed on agent1 and cannot be restarted
diff:
  description: What changed, a line for each thing.
  returned: success
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import as_diff
from ansible_collections.backendai.cluster.plugins.module_utils._module import CONNECTION_OPTIONS, finish
from ansible_collections.backendai.cluster.plugins.module_utils._session.reap import reap


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **CONNECTION_OPTIONS,
            "end": {"type": "list", "elements": "str", "default": []},
            "restart": {"type": "list", "elements": "str", "default": []},
            "expired": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        params, dry = module.params, module.check_mode
        client, store = connect(params["docker_host"]), Store(params["state_path"])
        reaped = reap(client, store, params["end"], params["restart"], expired=params["expired"], dry=dry)
        for session_id, sentence in reaped.failures.items():
            module.warn(f"{session_id}: {sentence}")
        return {"changed": bool(reaped.changes), "diff": as_diff(reaped.changes), "failures": reaped.failures}

    finish(module, run)


if __name__ == "__main__":
    main()
