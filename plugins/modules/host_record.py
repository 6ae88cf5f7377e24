#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_record
short_description: Write down what is on a host before it is provisioned
description:
  - "Internal: called by the roles of this collection."
  - Keeps in C(/var/lib/backendai/before.json), for root only, what was there before the first provisioning, and which
    packages, users and groups came with it, so that M(backendai.cluster.host_removal) can give the host back.
  - What is written down once stays. After a provisioning that was interrupted, only what certainly came with it is
    attributed to this collection. Of a host whose record was removed, it is not known what was there.
extends_documentation_fragment:
  - backendai.cluster.attributes
requirements:
  - dpkg and apt, or rpm
options:
  state:
    description: Whether an installation begins, or has ended.
    type: str
    choices: [begun, ended]
    required: true
  packages:
    description: The packages that are about to be installed.
    type: list
    elements: str
    default: []
  users:
    description: The users that are about to be created.
    type: list
    elements: str
    default: []
  groups:
    description: The groups that are about to be created.
    type: list
    elements: str
    default: []
  sysctls:
    description: The names of the kernel settings that are about to be changed.
    type: list
    elements: str
    default: []
  units:
    description: The systemd units that are about to be enabled or masked.
    type: list
    elements: str
    default: []
  engine:
    description: Where the Docker engine comes from; later provisionings use it, too.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Write down what is there before
  backendai.cluster.host_record:
    state: begun
    packages: [docker.io]
"""

RETURN = "# Only the common return values."

import dataclasses
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._host import installation
from ..module_utils._host.host_record import Installed, begin, end, find_roles, first_record, read_record, write_record
from ..module_utils._host.packages import name_of
from ..module_utils._model.change import Change, as_diff
from ..module_utils._module import run_module

OPTIONS: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["begun", "ended"], "required": True},
    "packages": {"type": "list", "elements": "str", "default": []},
    "users": {"type": "list", "elements": "str", "default": []},
    "groups": {"type": "list", "elements": "str", "default": []},
    "sysctls": {"type": "list", "elements": "str", "default": []},
    "units": {"type": "list", "elements": "str", "default": []},
    "engine": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)

    def run() -> dict[str, Any]:
        params, before, host = module.params, read_record(), installation.read_installed()
        after = before or first_record(installation.read_tables(), find_roles())
        if params["state"] == "begun":
            sysctls, units = installation.read_sysctls(params["sysctls"]), installation.read_units(params["units"])
            packages = frozenset(map(name_of, params["packages"]))
            wanted = Installed(packages, frozenset(params["users"]), frozenset(params["groups"]))
            automatic = installation.read_automatic() if after.before else ()
            after = begin(after, host, wanted, sysctls, units, automatic)
            after = dataclasses.replace(after, agent_engine=params["engine"] or after.agent_engine)
        else:
            after = end(after, host)
        if after != before and not module.check_mode:
            write_record(after)
        added = after.added - before.added if before else after.added
        changes = [Change("packages that came", None, ", ".join(sorted(added.packages)))] if added.packages else []
        return {"changed": after != before, "diff": as_diff(changes)}

    run_module(module, run)


if __name__ == "__main__":
    main()
