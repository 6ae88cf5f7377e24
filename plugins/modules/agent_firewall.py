#!/usr/bin/python
# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: agent_firewall
short_description: Apply host firewall rules with automatic rollback
description:
  - "Internal: called by the roles of this collection."
  - With O(state=applied), checks the new rules, schedules the rollback, and replaces the rules atomically. If they are
    not confirmed within O(confirm_timeout) seconds, a systemd timer (without systemd, a background process) restores
    the previous rules. Rules that were confirmed before need no confirmation.
  - With O(state=confirmed), makes the new rules permanent. This requires an SSH connection that was opened after they
    were applied, which proves that the operator is not locked out; use C(meta=reset_connection).
  - The rules are chains of the collection's own nftables table. They only drop packets, so they take effect in addition
    to those of Docker, ufw and firewalld. They apply to established connections, too.
  - What the roles of the host need is compared with what firewalld and ufw let in. With O(foreign=open), what lacks is
    added where they are active, on the same trial, unless a rule that comes before denies it. Rules that are there are
    left, and noted; what is added has a mark, and is written down, and only that is ever removed. Neither is enabled,
    disabled or reloaded, and no rule is about SSH.
extends_documentation_fragment:
  - backendai.cluster.attributes
  - backendai.cluster.options.state
requirements:
  - iproute2
  - nftables
options:
  state:
    description:
      - Whether to apply rules, to confirm the applied ones, which uses only O(nonce), O(force) and O(state_path), or to
        remove what was added to firewalld and ufw, which uses only O(state_path).
    type: str
    choices: [applied, confirmed, closed]
    default: applied
  nonce:
    description: The nonce that O(state=applied) returned. Required with O(state=confirmed).
    type: str
  force:
    description:
      - Whether to confirm without a new SSH connection, for example from a console. Whether new connections are
        accepted is not checked then.
    type: bool
    default: false
  docker_host:
    description: The address of the host's Docker engine, if it has one, for the program that rolls back.
    type: str
    default: unix:///var/run/docker.sock
  enabled:
    description: Whether to enable the host firewall. Published ports of sessions are open to gateways only in either
      case.
    type: bool
    default: true
  firewall:
    description:
      - The allowed connections, as in C(firewall_ssh_sources), C(firewall_gateways), C(firewall_agents),
        C(firewall_ssh_ports), C(firewall_allow), C(firewall_interfaces) and C(firewall_mode) of the role
        P(backendai.cluster.firewall#role), here without their prefix.
    type: dict
    default: {}
  management_networks:
    description:
      - The networks in which an agent is reached by SSH, as in C(agent_management_networks). With O(compute_networks),
        SSH is accepted only at its addresses in the former, and what agents send each other only in the latter.
      - Rules that would cut off this connection or the underlay are refused, or, with O(separation=warn), left out.
    type: list
    elements: str
    default: []
  compute_networks:
    description: The networks of the underlay, as in C(agent_compute_networks).
    type: list
    elements: str
    default: []
  separation:
    description: Whether networks that are not apart are an error or a warning, as in C(agent_network_separation).
    type: str
    choices: [require, warn]
    default: require
  underlay_address:
    description: The address at which other agents reach it, as in C(agent_underlay_address).
    type: str
    default: ""
  inventory_managers:
    description: The addresses of the hosts in the inventory group C(managers).
    type: list
    elements: str
    default: []
  foreign:
    description: Whether to return what firewalld and ufw lack, or to add it, too, as in C(firewall_foreign).
    type: str
    choices: [report, open]
    default: report
  needed:
    description: What the roles of the host serve, in the form of C(firewall_allow), beside the tunnels of its sessions.
    type: list
    elements: dict
    default: []
  bridges:
    description: Whether the host is an agent, so that firewalld must not filter the bridges of its sessions.
    type: bool
    default: false
  confirm_timeout:
    description: The time in seconds after which unconfirmed rules are rolled back, V(5) to V(3600).
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Apply host firewall rules with automatic rollback
  backendai.cluster.agent_firewall:
"""

RETURN = r"""
nonce: {type: str, returned: with O(state=applied),
  description: The nonce to confirm the rules with; empty if they need no confirmation.}
ssh_sources: {type: list, elements: str, returned: with O(state=applied),
  description: The networks that may log in by SSH.}
lacking: {type: list, elements: str, returned: with O(state=applied),
  description: "What firewalld and ufw close: a sentence for each, and the command lines that open it, if any do."}
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._firewall.audit import audit_zones
from ..module_utils._firewall.foreign import Found, close_firewalls, find_firewalls, open_firewalls
from ..module_utils._firewall.openings import Opening, openings_of_rules, openings_of_session
from ..module_utils._firewall.policy import REPORT, Firewall, parse_firewall, parse_timeout
from ..module_utils._firewall.state import FirewallState
from ..module_utils._firewall.surroundings import read_zones
from ..module_utils._firewall.trial import apply_with_rollback, confirm, schedule_rollback
from ..module_utils._host.store import Store
from ..module_utils._model.change import as_diff
from ..module_utils._model.errors import EXPECTED, ClusterError, as_sentence, reason
from ..module_utils._module import CAPACITY_OPTIONS, CONNECTION_OPTIONS, SEPARATION_OPTIONS, run_module
from ..module_utils._network.host import read_links, ssh_connection

_ALONE = (
    "firewall_ssh_sources: only {address}, the source of this connection, will be able to log in by SSH; set"
    " firewall_ssh_sources, or add hosts to the group managers."
)

_REPORTS = (
    "firewall_mode: this host is not closed: its firewall is in report mode, which counts and logs what it would drop."
    " See it with the playbook firewall_report, allow what is needed, and then provision with firewall_mode: enforce."
)

_NOT_APART = "agent_network_separation: the firewall does not keep management and compute of this host apart, because"

_CLOSES = "{name} closes what the roles of this host need: set firewall_foreign to open, or run as root:"
_STAYS = "{name} closes what the roles of this host need, and no rule of ours opens it: {why}."
_WOULD = "{name} is not active, and would close what the roles of this host need: {why}."
_OFF = "{name} is not active. Before you enable it, run as root, beside what lets you log in:"

OPTIONS: dict[str, dict[str, Any]] = {
    **CONNECTION_OPTIONS,
    "state": {"type": "str", "choices": ["applied", "confirmed", "closed"], "default": "applied"},
    "nonce": {"type": "str"},
    "force": {"type": "bool", "default": False},
    "enabled": {"type": "bool", "default": True},
    "firewall": {"type": "dict", "default": {}},
    **SEPARATION_OPTIONS,
    "underlay_address": CAPACITY_OPTIONS["underlay_address"],
    "inventory_managers": {"type": "list", "elements": "str", "default": []},
    "foreign": {"type": "str", "choices": ["report", "open"], "default": "report"},
    "needed": {"type": "list", "elements": "dict", "default": []},
    "bridges": {"type": "bool", "default": False},
    "confirm_timeout": {"type": "int", "default": 60},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec=OPTIONS, required_if=[("state", "confirmed", ["nonce"])], supports_check_mode=True
    )
    act = {"applied": apply_rules, "confirmed": confirm_rules, "closed": close_others}[module.params["state"]]
    run_module(module, lambda: act(module))


def apply_rules(module: AnsibleModule) -> dict[str, Any]:
    """Apply the requested rules until they are confirmed or rolled back."""
    params, connection = module.params, ssh_connection()
    timeout = parse_timeout(params["confirm_timeout"])
    store, managers = Store(params["state_path"]), params["inventory_managers"]
    given = params["firewall"]
    options = {**given, "mode": given.get("mode") or FirewallState(store).usual_mode()}
    policy = parse_firewall(options, managers, connection.split()) if params["enabled"] else None
    findings: list[str] = []
    if policy:
        policy, findings = _with_zones(policy, params)

    def start_timer(nonce: str, until: int) -> None:
        schedule_rollback(params["state_path"], params["docker_host"], nonce, until)

    for sentence in findings:
        module.warn(sentence)
    if policy and policy.mode == REPORT:
        module.warn(_REPORTS)
    elif policy and not options.get("ssh_sources") and not managers:
        module.warn(_ALONE.format(address=", ".join(policy.ssh_sources)))
    found = _find_firewalls(module, store)
    opened = [each for each in found if each.active and params["foreign"] == "open"]
    lacks = [line for each in opened for line in each.lacks]
    # Each command of ufw takes a third of a second.
    timeout += sum(line.startswith("ufw ") for line in lacks) // 2
    trial = apply_with_rollback(
        store, policy, timeout, connection, start_timer, check_mode=module.check_mode, always=bool(lacks)
    )
    changes = [*trial.changes, *open_firewalls(store, opened, check_mode=module.check_mode)]
    return {
        "changed": bool(changes or trial.nonce),
        "diff": as_diff(changes),
        "nonce": trial.nonce,
        "lacking": [line for each in found for line in _describe(each, opened=each in opened)],
        "ssh_sources": list(policy.ssh_sources) if policy else [],
    }


def _find_firewalls(module: AnsibleModule, store: Store) -> list[Found]:
    """Return the firewalls of others; where they are not to be changed, one that does not answer is a warning."""
    try:
        return find_firewalls(_list_openings(store, module.params["needed"]), bridges=module.params["bridges"])
    except EXPECTED as error:
        if module.params["foreign"] == "open":
            raise
        module.warn(f"firewall_foreign: what firewalld and ufw let in is not known: {as_sentence(reason(error))}")
        return []


def _list_openings(store: Store, needed: list[dict[str, Any]]) -> list[Opening]:
    """Return what the roles need, and the tunnels of sessions, without what this host would send to itself."""
    own = {entry["local"] for link in read_links() for entry in link["addr_info"]}
    sessions, _damaged = store.load_all()
    of_sessions = [opening for entry in sessions for opening in openings_of_session(entry.plan, entry.agent)]
    listed = dict.fromkeys([*openings_of_rules(needed), *of_sessions])
    return [opening for opening in listed if opening.source.partition("/")[0] not in own]


def _describe(found: Found, *, opened: bool) -> list[str]:
    """Return what it closes after it was ``opened``, or would close once it is active."""
    lines = [(_CLOSES if found.active else _OFF).format(name=found.name), *found.lines]
    closed = [(_STAYS if found.active else _WOULD).format(name=found.name, why=why) for why in found.closed]
    return [*(lines if found.lacks and not opened else []), *closed]


def _with_zones(firewall: Firewall, params: Mapping[str, Any]) -> tuple[Firewall, list[str]]:
    """Return the firewall with the networks of management and compute, if they are apart, and else a warning.

    Raises :class:`ClusterError` instead if the separation is required: the rules would close what is in use.
    """
    if not params["management_networks"] and not params["compute_networks"]:
        return firewall, []
    zones = read_zones(params["management_networks"], params["compute_networks"], params["underlay_address"])
    findings = [finding.message for finding in audit_zones(zones)]
    if findings and params["separation"] == "require":
        raise ClusterError(" ".join(f"{message}." for message in findings))
    if findings:
        return firewall, [f"{_NOT_APART} {'; '.join(findings)}."]
    return dataclasses.replace(firewall, management=zones.management, compute=zones.compute), []


def confirm_rules(module: AnsibleModule) -> dict[str, Any]:
    """Confirm the rules on trial; there are none in check mode."""
    params = module.params
    if not module.check_mode:
        confirm(Store(params["state_path"]), params["nonce"], ssh_connection(), force=params["force"])
    return {"changed": False}


def close_others(module: AnsibleModule) -> dict[str, Any]:
    """Remove what was added to firewalls of others."""
    changes = close_firewalls(Store(module.params["state_path"]), check_mode=module.check_mode)
    return {"changed": bool(changes), "diff": as_diff(changes)}


if __name__ == "__main__":
    main()
