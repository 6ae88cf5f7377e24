#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Have a session's image on an agent."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_image
short_description: Pull a session's image where the agent does not have it
version_added: 0.1.0
description:
  - Pulls an image unless the agent's engine has it already. A phase of its own, since it may take long.
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
  name:
    description: The image, with its registry and tag.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Have the image
  backendai.cluster.session_image:
    name: registry.example.com/pytorch:2.3
"""

RETURN = r"""
digest:
  description: The digest of the image; V(null) in check mode when it would be pulled.
  returned: success
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._agent.module import CONNECTION_OPTIONS, finish
from ansible_collections.backendai.cluster.plugins.module_utils._core.change import Change, as_diff
from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import find_image, pull_image


def main() -> None:
    module = AnsibleModule(
        argument_spec={**CONNECTION_OPTIONS, "name": {"type": "str", "required": True}},
        supports_check_mode=True,
    )

    def run() -> dict[str, Any]:
        name, client = module.params["name"], connect(module.params["docker_host"])
        found = find_image(client, name)
        changes = [] if found else [Change(f"image {name}", None, "pulled")]
        if not found and not module.check_mode:
            pull_image(client, name)
            found = find_image(client, name)
        return {"changed": bool(changes), "diff": as_diff(changes), "digest": found.digest if found else None}

    finish(module, run)


if __name__ == "__main__":
    main()
