#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: agent_firewall
short_description: Apply or confirm who may open a connection to a host
description:
  - "Internal: called by the roles of this collection."
  - With O(state=applied), checks the new rules, prepares the way back, and replaces the rules in one step. Until they
    are confirmed they last for O(confirm_timeout) seconds; then the old ones come back, by a timer of systemd or,
    without systemd, by a process of their own. Rules that were confirmed before need no confirmation.
  - With O(state=confirmed), lets new rules stay. That has to come over another SSH connection than the one that applied
    them, which proves that the operator is not locked out; C(meta=reset_connection) sees to it.
  - The rules are chains of the project's own nftables table. They only drop, so that they hold beside those of Docker,
    ufw and firewalld, whatever those accept. Every packet is looked at, also those of connections that are open
    already.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.options.state
requirements:
  - iproute2
  - nftables
options:
  state:
    description: Whether to apply rules, or to confirm those that were applied; that takes O(nonce), O(unproven) and
      O(state_path) alone.
    type: str
    choices: [applied, confirmed]
    default: applied
  nonce:
    description: What applying the rules returned. Required with O(state=confirmed).
    type: str
  unproven:
    description:
      - Whether to confirm although this is no new SSH connection, such as from a console. Nothing shows then that
        anybody gets in.
    type: bool
    default: false
  docker_host:
    description: The address of the host's Docker engine, for the program that takes rules back; it may have none.
    type: str
    default: unix:///var/run/docker.sock
  enabled:
    description: Whether there is to be a firewall. Without one, published ports of sessions are for gateways still.
    type: bool
    default: true
  firewall:
    description:
      - Who may open a connection, as the variables C(firewall_ssh_sources), C(firewall_gateways), C(firewall_agents),
        C(firewall_ssh_ports), C(firewall_allow) and C(firewall_interfaces) of the role
        P(backendai.cluster.firewall#role) say it, here without their prefix.
    type: dict
    default: {}
  inventory_managers:
    description: The addresses of the hosts that the inventory calls managers.
    type: list
    elements: str
    default: []
  confirm_timeout:
    description: For how many seconds new rules last that are not confirmed, V(5) to V(3600).
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Apply or confirm who may open a connection to a host
  backendai.cluster.agent_firewall:
"""

RETURN = "# Internal."

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._firewall.policy import parse_firewall, parse_timeout
from ..module_utils._firewall.surroundings import detect_firewalls
from ..module_utils._firewall.trial import apply_with_rollback, confirm, schedule_rollback
from ..module_utils._host.store import Store
from ..module_utils._model.change import as_diff
from ..module_utils._module import CONNECTION_OPTIONS, run_module
from ..module_utils._network.host import ssh_connection

_ALONE = (
    "firewall_ssh_sources: from now on only {address} logs in here, which is where this connection comes from; name"
    " firewall_ssh_sources, or the hosts of the group managers."
)


OPTIONS: dict[str, dict[str, Any]] = {
    **CONNECTION_OPTIONS,
    "state": {"type": "str", "choices": ["applied", "confirmed"], "default": "applied"},
    "nonce": {"type": "str"},
    "unproven": {"type": "bool", "default": False},
    "enabled": {"type": "bool", "default": True},
    "firewall": {"type": "dict", "default": {}},
    "inventory_managers": {"type": "list", "elements": "str", "default": []},
    "confirm_timeout": {"type": "int", "default": 60},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec=OPTIONS, required_if=[("state", "confirmed", ["nonce"])], supports_check_mode=True
    )
    act = apply_rules if module.params["state"] == "applied" else confirm_rules
    run_module(module, lambda: act(module))


def apply_rules(module: AnsibleModule) -> dict[str, Any]:
    """Have the rules hold that are asked for, until they are confirmed or taken back."""
    params, connection = module.params, ssh_connection()
    seconds = parse_timeout(params["confirm_timeout"])
    asked, known = params["firewall"], params["inventory_managers"]
    wanted = parse_firewall(asked, known, connection.split()) if params["enabled"] else None

    def start_timer(nonce: str, until: int) -> None:
        schedule_rollback(params["state_path"], params["docker_host"], nonce, until)

    for sentence in detect_firewalls():
        module.warn(sentence)
    if wanted and not asked.get("ssh_sources") and not known:
        module.warn(_ALONE.format(address=", ".join(wanted.ssh_sources)))
    store = Store(params["state_path"])
    trial = apply_with_rollback(store, wanted, seconds, connection, start_timer, dry=module.check_mode)
    return {
        "changed": bool(trial.changes or trial.nonce),
        "diff": as_diff(trial.changes),
        "nonce": trial.nonce,
        "ssh_sources": list(wanted.ssh_sources) if wanted else [],
    }


def confirm_rules(module: AnsibleModule) -> dict[str, Any]:
    """Let the rules on trial stay; there are none in check mode."""
    params = module.params
    if not module.check_mode:
        confirm(Store(params["state_path"]), params["nonce"], ssh_connection(), unproven=params["unproven"])
    return {"changed": False}


if __name__ == "__main__":
    main()
