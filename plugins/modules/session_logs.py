#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Return what the containers of a session printed on an agent."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_logs
short_description: Return what the containers of a session printed on an agent, and change nothing
version_added: 0.1.0
description:
  - Reads the end of each container's log, and in C(main1) the end of the logs of the session's apps, which are the
    files C(/var/log/backendai/NAME.log). Containers that have ended are read too, as long as they are there.
  - A log that cannot be read is told and is no failure.
  - At most the last MiB of each log is given; a line that has lost its beginning by that begins with C(…). A file of
    more than 256 MiB is not read.
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
    support: none
    details: Nothing is ever changed.
options:
  name:
    description: The name of the session; not needed where O(session_id) is given.
    type: str
    default: ""
  session_id:
    description: The id of the session.
    type: str
    default: ""
  kernel:
    description: The hostname of the one container whose logs are read, such as V(sub1); empty for all.
    type: str
    default: ""
  lines:
    description: How many lines of each log to return, the last ones; 1 to 100000.
    type: int
    default: 100
"""

EXAMPLES = r"""
- name: Read what this agent's containers of the session printed
  backendai.cluster.session_logs:
    name: train-llm
    lines: 20
  register: read
"""

RETURN = r"""
parts:
  description:
    - What this agent holds of sessions of that name or id. There is none on an agent that holds nothing of it.
    - RV(ignore:logs) has each container's logs by its hostname. The lines of RV(ignore:log) begin with the time, in
      UTC, at which they were printed, output and errors in the order in which they came. RV(ignore:apps) are the logs
      of apps by name. RV(ignore:error) says which of the logs could not be read, and why; V(null) where all were.
  returned: success
  type: list
  elements: dict
  sample:
    - containers: {main1: {status: exited, image_digest: "sha256:…", exit_code: 1, finished_at: 1772333997}}
      logs:
        main1:
          log: ["2026-03-01T02:59:57.120395714Z CUDA out of memory"]
          apps: {jupyter: ["[I] Serving notebooks from local directory: /home/work"]}
          error: null
unfit:
  description: Why the agent cannot be asked, one sentence; V(null) when it can.
  returned: success
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import EXPECTED, ClusterError
from ansible_collections.backendai.cluster.plugins.module_utils._model.session import MAX_LINES
from ansible_collections.backendai.cluster.plugins.module_utils._module import CONNECTION_OPTIONS, finish
from ansible_collections.backendai.cluster.plugins.module_utils._session.logs import logs_of
from ansible_collections.backendai.cluster.plugins.module_utils._session.verify import parts_of


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **CONNECTION_OPTIONS,
            "name": {"type": "str", "default": ""},
            "session_id": {"type": "str", "default": ""},
            "kernel": {"type": "str", "default": ""},
            "lines": {"type": "int", "default": 100},
        },
        supports_check_mode=True,
    )

    def look() -> dict[str, Any]:
        params, store = module.params, Store(module.params["state_path"])
        kernel, lines = params["kernel"], params["lines"]
        if not 1 <= lines <= MAX_LINES:
            raise ClusterError(f"lines: {lines} must be a whole number from 1 to {MAX_LINES}")
        try:
            held = parts_of(store, params["name"], params["session_id"])
            parts = [logs_of(connect(params["docker_host"]), one, kernel, lines) for one in held]
        except EXPECTED as error:
            return {"changed": False, "parts": [], "unfit": str(error)}
        return {"changed": False, "parts": parts, "unfit": None}

    finish(module, look)


if __name__ == "__main__":
    main()
