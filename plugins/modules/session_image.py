#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Have a session's images on an agent."""

from __future__ import annotations

DOCUMENTATION = r"""
module: session_image
short_description: Pull a session's images where an agent does not have them
version_added: 0.1.0
description:
  - Starts to pull an image unless the agent's engine has it already, and says how far it is. A process of its own on
    the agent pulls, and ends when the session is no longer claimed there.
  - Each look renews the claim of this run, so that it does not end before the pull.
  - An action on the control node looks again and again, shows how far the pull is, and goes from one image to the next.
    It comes back after a third of O(seconds), whether all images are there or not, so that agents in turn renew their
    claims; RV(under_way) says what is left for the next call.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.agent
  - backendai.cluster.attributes
  - backendai.cluster.attributes.group
attributes:
  action:
    description: Chooses what is pulled, and with whose password; waits, and shows how far the pull is.
    support: full
  check_mode:
    support: full
    details: Nothing is pulled, and no claim is needed.
  diff_mode:
    support: full
options:
  session_id:
    description: The session.
    type: str
    required: true
  nonce:
    description: The nonce of this run, which must be the one that claimed the session last.
    type: str
    required: true
  seconds:
    description: For how many seconds the claim goes on from now.
    type: int
    required: true
  images:
    description:
      - The images that the agent lacks, with their registries and tags. Without any, only the claim is renewed.
    type: list
    elements: str
    default: []
  found:
    description:
      - The images that the agents of the session have, by agent and name, as RV(images) has them.
      - An agent pulls by its digest what another one has from a registry. It fails where agents have different ones.
    type: dict
    default: {}
  registries:
    description:
      - The C(username) and C(password) for each registry that asks for them, by its host and port. The agent gets the
        one that it needs.
    type: dict
    default: {}
  name:
    description: The image to pull. Set by the action.
    type: str
  reference:
    description: The name or digest that is pulled for O(name). Set by the action.
    type: str
  username:
    description: Who reads from the registry. Set by the action.
    type: str
  password:
    description: The password of O(username). Set by the action.
    type: str
"""

EXAMPLES = r"""
- name: Pull the images
  backendai.cluster.session_image:
    session_id: "{{ planned.id }}"
    nonce: "{{ planned.nonce }}"
    seconds: 600
    images: [registry.example.com/pytorch:2.3]
    registries:
      registry.example.com:
        username: reader
        password: "{{ vaulted_password }}"
"""

RETURN = r"""
images:
  description: Those of O(images) that are there now, with their C(id), C(digest) and C(reference), by name.
  returned: success
  type: dict
  sample:
    registry.example.com/pytorch:2.3:
      id: "sha256:…"
      digest: "sha256:…"
      reference: registry.example.com/pytorch@sha256:…
under_way:
  description: Those that are not there yet; nothing in check mode.
  returned: success
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._docker.images import find_image
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.change import Change, as_diff
from ansible_collections.backendai.cluster.plugins.module_utils._model.registries import Credential
from ansible_collections.backendai.cluster.plugins.module_utils._module import CONNECTION_OPTIONS, finish
from ansible_collections.backendai.cluster.plugins.module_utils._session.claim_guard import renew
from ansible_collections.backendai.cluster.plugins.module_utils._session.pull import Pull, Seen, look

OPTIONS = {
    "session_id": {"type": "str", "required": True},
    "nonce": {"type": "str", "required": True},
    "seconds": {"type": "int", "required": True},
    "images": {"type": "list", "elements": "str", "default": []},
    "found": {"type": "dict", "default": {}},
    "registries": {"type": "dict", "default": {}, "no_log": True},
    "name": {"type": "str"},
    "reference": {"type": "str"},
    "username": {"type": "str"},
    "password": {"type": "str", "no_log": True},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec={**CONNECTION_OPTIONS, **OPTIONS},
        required_together=[("name", "reference"), ("username", "password")],
        supports_check_mode=True,
    )
    finish(module, lambda: _result(module.params, dry=module.check_mode))


def _result(params: dict[str, Any], *, dry: bool) -> dict[str, Any]:
    """Return what came of one look at one image, or at none."""
    client, store, name = connect(params["docker_host"]), Store(params["state_path"]), params["name"]
    held = None if dry else renew(store, params["session_id"], params["nonce"], params["seconds"])
    if name is None:
        return {"changed": False, "images": {}, "under_way": []}
    if held is None:
        found = find_image(client, name)
        seen = Seen(found.known if found else None)
    else:
        login = Credential(params["username"], params["password"]) if params["username"] else None
        seen = look(client, params["docker_host"], store, held, Pull(name, params["reference"], login))
    changes = [] if seen.image else [Change(f"image {name}", None, "pulled")]
    return {
        "changed": bool(changes),
        "diff": as_diff(changes),
        "images": {name: vars(seen.image)} if seen.image else {},
        "under_way": [] if seen.image or dry else [name],
        "started": seen.started,
        "progress": seen.progress.told(),
    }


if __name__ == "__main__":
    main()
