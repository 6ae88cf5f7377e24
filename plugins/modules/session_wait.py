#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wait for the end of a session's main1."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_wait
short_description: Wait for the end of a session's main1
version_added: 0.1.0
description:
  - Blocks until the container of main1 has ended on this agent, or the time is over. That is how a run waits for the
    command of a batch session.
  - A container that was removed meanwhile, or never was on this agent, counts as ended.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.agent
  - backendai.cluster.attributes
  - backendai.cluster.attributes.group
attributes:
  check_mode:
    support: full
    details: Waits as in any other run; nothing is ever changed.
  diff_mode:
    support: none
    details: Nothing is ever changed.
options:
  session_id:
    description: The session.
    type: str
    required: true
  seconds:
    description: How long to wait at most.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Wait for the end of the command
  backendai.cluster.session_wait:
    session_id: "{{ planned.plan.id }}"
  register: main1
  until: main1.ended
  retries: 1440
  delay: 0
"""

RETURN = r"""
ended:
  description: Whether main1 no longer runs.
  returned: success
  type: bool
exit_code:
  description: The exit code of main1; V(null) while it runs, and where its container is gone.
  returned: success
  type: int
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._module import CONNECTION_OPTIONS, finish
from ansible_collections.backendai.cluster.plugins.module_utils._session.command import wait_for_end


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **CONNECTION_OPTIONS,
            "session_id": {"type": "str", "required": True},
            "seconds": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        params, client = module.params, connect(module.params["docker_host"])
        ended, exit_code = wait_for_end(client, params["session_id"], params["seconds"])
        return {"changed": False, "ended": ended, "exit_code": exit_code}

    finish(module, run)


if __name__ == "__main__":
    main()
