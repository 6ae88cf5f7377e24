# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shared options and error handling of the modules that run on hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ._model.errors import sentence
from ._model.printable import printable_data
from ._program.launcher import set_path

CONNECTION_OPTIONS: dict[str, dict[str, Any]] = {
    "docker_host": {"type": "str", "default": "unix:///var/run/docker.sock"},
    "state_path": {"type": "path", "default": "/var/lib/backendai"},
}

GATEWAY_OPTIONS: dict[str, dict[str, Any]] = {"state_path": {"type": "path", "default": "/var/lib/backendai-gateway"}}

CAPACITY_OPTIONS: dict[str, dict[str, Any]] = {
    "resource_group": {"type": "str", "default": "default"},
    "schedulable": {"type": "bool", "default": True},
    "labels": {"type": "list", "elements": "str", "default": []},
    "topology": {"type": "list", "elements": "str", "default": []},
    "topology_levels": {"type": "list", "elements": "str", "default": []},
    "slots": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "devices": {"type": "list", "elements": "raw", "required": True},
        },
    },
    "reserved": {"type": "dict", "default": {"cpu": 0, "mem": "512m"}},
    "reserved_devices": {"type": "list", "elements": "str", "default": []},
    "cpu_overcommit": {"type": "int", "default": 1},
    "max_containers": {"type": "int", "default": 0},
    "underlay_address": {"type": "str", "default": ""},
    "allow_host_network": {"type": "bool", "default": False},
    "allow_infiniband": {"type": "bool", "default": False},
    "mount_roots": {"type": "list", "elements": "str", "default": ["/"]},
    "disk_reserve": {"type": "str", "default": "1g"},
    "underlay_encryption": {"type": "str", "choices": ["", "wireguard"], "default": ""},
}

SEPARATION_OPTIONS: dict[str, dict[str, Any]] = {
    "management_networks": {"type": "list", "elements": "str", "default": []},
    "compute_networks": {"type": "list", "elements": "str", "default": []},
    "separation": {"type": "str", "choices": ["require", "warn"], "default": "require"},
}

REGISTRY_OPTIONS: dict[str, dict[str, Any]] = {
    "registry_check": {"type": "list", "elements": "str", "default": []},
    "allow_registry_login": {"type": "bool", "default": False},
}

# The limits of new containers, whichever session they belong to.
LIMIT_OPTIONS: dict[str, dict[str, Any]] = {
    "pids_limit": {"type": "int", "default": 4096},
    "pids_per_core": {"type": "int", "default": 512},
    "log_max_size": {"type": "str", "default": "20m"},
    "log_max_files": {"type": "int", "default": 5},
}

_ENDPOINT: dict[str, dict[str, Any]] = {
    "address": {"type": "str", "required": True},
    "port": {"type": "int", "required": True},
}
_APP: dict[str, dict[str, Any]] = {
    "name": {"type": "str", "required": True},
    "protocol": {"type": "str", "choices": ["http", "tcp"], "default": "http"},
    "path": {"type": "str", "choices": ["strip", "keep", "none"], "default": "strip"},
    "start": {"type": "str", "default": "/"},
    **_ENDPOINT,
}
_ROUTE: dict[str, dict[str, Any]] = {
    "id": {"type": "str", "required": True},
    "name": {"type": "str", "required": True},
    "apps": {"type": "list", "elements": "dict", "default": [], "options": _APP},
    "ssh": {"type": "dict", "options": _ENDPOINT},
}
_VACATED: dict[str, dict[str, Any]] = {
    "id": {"type": "str", "required": True},
    "address": {"type": "str", "required": True},
}
ROUTES_OPTIONS: dict[str, dict[str, Any]] = {
    "routes": {"type": "list", "elements": "dict", "default": [], "options": _ROUTE},
    "ended": {"type": "list", "elements": "str", "default": []},
    "vacated": {"type": "list", "elements": "dict", "default": [], "options": _VACATED},
    "purge": {"type": "bool", "default": False},
}


def run_module(module: AnsibleModule, action: Callable[[], Mapping[str, Any]]) -> None:
    """Run a module and exit: with its result, or with an error message of one sentence."""
    set_path()
    try:
        result = action()
    except Exception as error:
        message = sentence(error)
        if message is None:
            raise
        module.fail_json(msg=message)
    module.exit_json(**printable_data(dict(result)))
