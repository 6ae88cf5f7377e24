"""The lab's Ansible inventories: ``.lab/inventory.yml`` of the machine, ``.lab/manager-inventory.yml`` of manager1."""

from __future__ import annotations

from pathlib import Path

from tests.lab.hosts import devices_of_hosts
from tests.lab.identity import HOSTS, Host, Lab, State

_HEAD = """\
---
# Written by `python3 -m tests.lab up`.
all:
  vars:
    ansible_user: root
    ansible_python_interpreter: /usr/bin/python3
    session_queue_path: {queue}
    firewall_mode: enforce
    ansible_ssh_private_key_file: {key}
    ansible_ssh_common_args: >-
      -o UserKnownHostsFile={known_hosts}
      -o GlobalKnownHostsFile=/dev/null
      -o StrictHostKeyChecking=yes
      -o IdentitiesOnly=yes
  children:
"""
#: The lab's package archive never changes, so updating apt's lists would only take time. The devices stand in for
#: accelerators.
_AGENT_VARS = """\
      vars:
        agent_cpu_overcommit: 8
        agent_apt_cache_valid_time: 315360000
        agent_slots: [{{name: lab.device, devices: [{devices}]}}]
"""
_MANAGER_VARS = """\
      vars:
        manager_inventory: {inventory}
        manager_policy: {policy}
        manager_wheels: {wheels}
        manager_timer: false
        manager_apt_cache_valid_time: 315360000
"""
#: Managers log in as an account with sudo, and only to agents and gateways.
_HEAD_OF_MANAGER = """\
---
# Written by `python3 -m tests.lab up`, for manager1.
all:
  children:
"""
_LOGIN_OF_MANAGER = """\
        ansible_user: backendai
        ansible_become: true
        ansible_python_interpreter: /usr/bin/python3
"""
POLICY = Path(__file__).with_name("policy.yml")


def write_inventories(lab: Lab, state: State) -> None:
    """Write the machine's inventory of all hosts, and the manager's of the hosts that it logs in to."""
    queue = lab.folder / "queue"
    queue.mkdir(exist_ok=True)
    devices = ", ".join(f"[{path}]" for path in sorted(devices_of_hosts()))
    agents = _AGENT_VARS.format(devices=devices)
    managers = _MANAGER_VARS.format(inventory=lab.manager_inventory, policy=POLICY, wheels=lab.wheels)
    text = _HEAD.format(key=lab.key, known_hosts=lab.known_hosts, queue=queue)
    for group in dict.fromkeys(host.group for host in HOSTS):
        text += _group(group, state, lab.kit) + {"agents": agents, "managers": managers}.get(group, "")
    lab.inventory.write_text(text)
    login = f"      vars:\n{_LOGIN_OF_MANAGER}"
    of_agents = f"{_group('agents', state)}{agents}{_LOGIN_OF_MANAGER}"
    lab.manager_inventory.write_text(f"{_HEAD_OF_MANAGER}{of_agents}{_group('gateways', state)}{login}")


def _group(group: str, state: State, kit: Path | None = None) -> str:
    """Return the inventory lines of a group's hosts; who provisions them has the ``kit``."""
    return f"    {group}:\n      hosts:\n" + "".join(_entry(host, state, kit) for host in HOSTS if host.group == group)


def _entry(host: Host, state: State, kit: Path | None) -> str:
    """Return the inventory lines of a host."""
    address = state.address(host)
    lines = f"        {host.name}:\n          ansible_host: {address}\n"
    lines += f"          agent_underlay_address: {address}\n" if host.group == "agents" else ""
    return lines + (f"          agent_kit: {kit}\n" if kit and host.needs_kit else "")
