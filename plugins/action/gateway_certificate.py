# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validate the options of a gateway on the control node, and install its certificate on the gateway."""

from __future__ import annotations

import dataclasses
import ipaddress
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..module_utils._gateway.model import Gateway
from ..module_utils._model.addressing import is_address
from ..module_utils._model.printable import printable_data
from ..module_utils._model.validation import ValidationError
from ..plugin_utils._request.gateway import parse_gateway
from ..plugin_utils.certificate_files import CERTIFICATE, KEY, read_pair


class ActionModule(ActionBase):
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result, variables = super().run(tmp, task_vars), task_vars or {}
        options = {name: self._templar.template(variables[name]) for name in variables if name.startswith("gateway_")}
        address = str(self._templar.template(variables.get("ansible_host") or variables["inventory_hostname"]))
        try:
            gateway = parse_gateway(options, address)
            certificate, key = read_pair(str(options.get(CERTIFICATE) or ""), str(options.get(KEY) or ""))
        except ValidationError as error:
            raise AnsibleActionFail(str(error)) from None
        args = dict(self._task.args)
        if args.get("state") == "validated":
            return {**result, "changed": False, "gateway": dataclasses.asdict(gateway)}
        args |= {"names": _names(gateway, address), "certificate": certificate, "key": key}
        return {**result, **printable_data(self._execute_module(module_args=args, task_vars=variables))}


def _names(gateway: Gateway, address: str) -> list[str]:
    """Return the names for a certificate: the host name, the wildcard of apps, and the IP address if known."""
    apps = [f"*.{gateway.domain}"] if gateway.domain else []
    ip_addresses = [str(ipaddress.ip_address(address))] if is_address(address) else []
    return list(dict.fromkeys([gateway.hostname, *apps, *ip_addresses]))
