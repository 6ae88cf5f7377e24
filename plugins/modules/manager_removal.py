#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: manager_removal
short_description: Look for sessions of a manager that is to be given back
description:
  - "Internal: called by the roles of this collection."
  - Fails if the queue has a session that waits, starts, runs or ends, unless O(end_sessions). Changes nothing.
extends_documentation_fragment:
  - backendai.cluster.attributes
options:
  queue_path:
    description: The folder of the queue. It may be missing.
    type: path
    required: true
  end_sessions:
    description: Whether the sessions are to be ended, and so no reason to fail.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Check that the manager has no session
  backendai.cluster.manager_removal:
    queue_path: /var/lib/backendai-manager/queue
"""

RETURN = r"""
sessions: {type: dict, returned: success, description: The names of the sessions by id.}
"""

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._model.errors import ClusterError, as_phrase
from ..module_utils._model.session import is_session_id
from ..module_utils._module import run_module

TERMINATED = "TERMINATED"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "queue_path": {"type": "path", "required": True},
            "end_sessions": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        sessions = find_sessions(Path(module.params["queue_path"]))
        if sessions and not module.params["end_sessions"]:
            raise ClusterError(
                f"sessions of this manager have not ended: {', '.join(sorted(sessions.values()))}; end them, or run"
                " this playbook with -e remove_sessions=true, which ends them first"
            )
        return {"changed": False, "sessions": sessions}

    run_module(module, run)


def find_sessions(queue: Path) -> dict[str, str]:
    """Return the names of the sessions in the queue that have not ended, by id, each with the agents to remove it from.

    Raises :class:`ClusterError` for a file that cannot be read: whether its session has ended is not known.
    """
    sessions = {}
    for path in sorted(queue.glob("[!.]*.json")):
        if not is_session_id(path.stem):
            continue
        try:
            entry = json.loads(path.read_bytes())
            state, name = str(entry["state"]), str(entry["name"])
            agents = [str(agent) for agent in entry.get("agents") or ()]
        except (ValueError, LookupError, TypeError) as error:
            raise ClusterError(
                f"{path} is damaged ({as_phrase(error)}): end its session, then remove the file"
            ) from error
        if state != TERMINATED:
            sessions[path.stem] = f"{name} ({', '.join(agents)} may still hold a part of it)" if agents else name
    return sessions


if __name__ == "__main__":
    main()
