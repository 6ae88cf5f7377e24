"""The lab's Ansible inventory, ``.lab/inventory.yml``."""

from __future__ import annotations

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


def write_inventory(lab: Lab, state: State) -> None:
    """Write the inventory: agents, gateways, and users, which are untrusted."""
    devices = ", ".join(f"[{path}]" for path in sorted(devices_of_hosts()))
    queue = lab.folder / "queue"
    queue.mkdir(exist_ok=True)
    text = _HEAD.format(key=lab.key, known_hosts=lab.known_hosts, queue=queue)
    for group in dict.fromkeys(host.group for host in HOSTS):
        text += f"    {group}:\n      hosts:\n"
        text += "".join(_entry(host, state) for host in HOSTS if host.group == group)
        text += _AGENT_VARS.format(devices=devices) if group == "agents" else ""
    (lab.folder / "inventory.yml").write_text(text)


def _entry(host: Host, state: State) -> str:
    """Return the inventory lines of a host."""
    address = state.address(host)
    lines = f"        {host.name}:\n          ansible_host: {address}\n"
    return lines + (f"          agent_underlay_address: {address}\n" if host.group == "agents" else "")
