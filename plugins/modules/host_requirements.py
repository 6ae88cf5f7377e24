#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_requirements
short_description: Check what a role needs on a host, all at once
description:
  - "Internal: called by the roles of this collection."
  - Runs before anything is changed on the host, and changes nothing itself. It fails with one sentence for each thing
    that the host lacks, which says what to do.
  - Returns which packages to install, and where the Docker engine comes from.
extends_documentation_fragment:
  - backendai.cluster.attributes
options:
  role:
    description: The role that the host is to have.
    type: str
    required: true
  family:
    description: What differs between distributions, as the role P(backendai.cluster.host#role) has it.
    type: dict
    required: true
  wanted:
    description:
      - What the role is to get. C(packages) are needed, and those of C(optional) are installed where they exist.
      - C(engines) are the packages of the Docker engine by where it comes from, the engine itself first. C(engine) says
        where it comes from; when empty, as before, or from where it is. C(docker_host) is its address.
      - C(manager_python) is the interpreter of a manager, and C(agent_python) that of an agent, if it is not Ansible's.
      - With C(install) false nothing is to be installed, also for C(features). C(kit) is what the filter
        P(backendai.cluster.kit#filter) says of the runtime kit.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Check what this host lacks
  backendai.cluster.host_requirements:
    role: gateway
    family: {name: Debian 13, manager: apt, install: apt-get install}
    wanted: {packages: [haproxy, nftables]}
"""

RETURN = r"""
engine: {type: str, returned: success, description: "Where the Docker engine comes from; empty for a role without one."}
packages: {type: list, elements: str, returned: success, description: "The packages to install."}
problems: {type: list, elements: str, returned: failure, description: "What the host lacks, a sentence each."}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._host.host_record import read_record
from ..module_utils._module import run_module
from ..module_utils._requirements.host_look import look
from ..module_utils._requirements.requirements import Family, Wanted, judge

OPTIONS: dict[str, dict[str, Any]] = {
    "role": {"type": "str", "required": True},
    "family": {"type": "dict", "required": True},
    "wanted": {"type": "dict", "default": {}},
}


def main() -> None:
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)

    def run() -> dict[str, Any]:
        params = module.params
        wanted = Wanted(params["role"], Family(**params["family"]), **params["wanted"])
        record = read_record()
        verdict = judge(wanted, look(wanted, record.agent_engine if record else ""))
        if verdict.problems:
            count = len(verdict.problems)
            found = f"This host lacks {count} things: " if count > 1 else ""
            module.fail_json(msg=f"{found}{' '.join(verdict.problems)}", problems=list(verdict.problems))
        return {"changed": False, "engine": verdict.engine, "packages": list(verdict.packages)}

    run_module(module, run)


if __name__ == "__main__":
    main()
