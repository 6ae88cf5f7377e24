#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The facts of an agent."""

from __future__ import annotations

DOCUMENTATION = r"""
module: agent_info
short_description: Read what an agent has, what is taken, and which sessions it holds
version_added: 0.1.0
description:
  - Reads an agent in one call, for planning sessions and for listing them. Changes nothing.
  - An agent that cannot hold containers (no Docker SDK, engine down, not provisioned) is no failure of this module.
    It says why in RV(unfit), so that a plan can do without that agent.
  - The slots C(cuda.device) and C(rocm.device) are found by themselves, with C(nvidia-smi) and in the kernel's topology
    of AMD's GPUs, unless O(slots) declares them. Where C(nvidia-smi) is there and fails, the agent offers no
    C(cuda.device), and C(warnings) says so.
  - A GPU of NVIDIA is offered where the engine can give it to containers, by a CDI specification that names its UUID
    (kind C(nvidia.com/gpu), with the engine's feature C(cdi) on), or else by C(nvidia-container-runtime-hook). Others
    are left out, and C(warnings) says so.
author:
  - backendai.cluster contributors (!UNKNOWN)
extends_documentation_fragment:
  - backendai.cluster.agent
  - backendai.cluster.agent.capacity
  - backendai.cluster.attributes
  - backendai.cluster.attributes.group
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: It never changes anything.
options:
  images:
    description: Images to look for on the agent.
    type: list
    elements: str
    default: []
  paths:
    description: Folders to look for on the agent.
    type: list
    elements: str
    default: []
seealso:
  - module: backendai.cluster.session_plan
"""

EXAMPLES = r"""
- name: Read the agent
  backendai.cluster.agent_info:
    cpu_overcommit: 2
    images: ["registry.example.com/pytorch:2.3"]
  register: agent
"""

RETURN = r"""
agent:
  description: The agent's facts; V(null) when it is not fit.
  returned: success
  type: dict
  sample:
    architecture: amd64
    capacity: {cpu: 16, mem: 24696061952, cuda.device: 1}
    devices: [{slot: cuda.device, id: GPU-5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a, numa: 0, free: true}]
    engine: 20.10.24
    infiniband: false
    taken: {cpu: 4, mem: 4294967296}
    warnings: []
unfit:
  description: Why the agent cannot hold containers, one sentence; V(null) when it can.
  returned: success
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.backendai.cluster.plugins.module_utils._docker.client import connect
from ansible_collections.backendai.cluster.plugins.module_utils._host.store import Store
from ansible_collections.backendai.cluster.plugins.module_utils._model.errors import EXPECTED
from ansible_collections.backendai.cluster.plugins.module_utils._module import (
    CAPACITY_OPTIONS,
    CONNECTION_OPTIONS,
    finish,
)
from ansible_collections.backendai.cluster.plugins.module_utils._session.survey import Questions, Settings, survey


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **CONNECTION_OPTIONS,
            **CAPACITY_OPTIONS,
            "images": {"type": "list", "elements": "str", "default": []},
            "paths": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )

    def read() -> dict[str, Any]:
        params = module.params
        settings = Settings(**{option: params[option] for option in CAPACITY_OPTIONS})
        questions = Questions(params["images"], params["paths"])
        try:
            facts = survey(connect(params["docker_host"]), Store(params["state_path"]), settings, questions)
        except EXPECTED as error:
            return {"agent": None, "unfit": str(error)}
        return {"agent": facts.to_dict(), "unfit": None}

    finish(module, read)


if __name__ == "__main__":
    main()
