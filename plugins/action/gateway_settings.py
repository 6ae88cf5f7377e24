# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the variables of a gateway, on the control node, before the gateway is touched."""

from __future__ import annotations

import dataclasses
import ipaddress
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.model import Gateway
from ansible_collections.backendai.cluster.plugins.module_utils._model.addressing import is_address
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import SpecError
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.gateway import parse_gateway
from ansible_collections.backendai.cluster.plugins.plugin_utils.certificate_files import read_pair


class ActionModule(ActionBase):
    """The action ``backendai.cluster.gateway_settings``."""

    _requires_connection = False
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        variables = task_vars or {}
        given = {name: self._templar.template(variables[name]) for name in variables if name.startswith("gateway_")}
        host = str(self._templar.template(variables.get("ansible_host") or variables["inventory_hostname"]))
        try:
            gateway = parse_gateway(given, host)
            read_pair(str(given.get("gateway_certificate") or ""), str(given.get("gateway_certificate_key") or ""))
        except SpecError as error:
            raise AnsibleActionFail(str(error)) from None
        names = _names(gateway, host)
        return {**result, "changed": False, "gateway": dataclasses.asdict(gateway), "names": names}


def _names(gateway: Gateway, host: str) -> list[str]:
    """Return what a certificate has to be for: the host name, those of apps, and the address where it is known."""
    address = [str(ipaddress.ip_address(host))] if is_address(host) else []
    own = [f"*.{gateway.domain}"] if gateway.domain else []
    return list(dict.fromkeys([gateway.hostname, *own, *address]))
