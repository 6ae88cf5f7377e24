# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a certificate and its key on the control node, and have them on the gateway."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import SpecError
from ansible_collections.backendai.cluster.plugins.plugin_utils.certificate_files import read_pair


class ActionModule(ActionBase):
    """The action ``backendai.cluster.gateway_certificate``."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args = dict(self._task.args)
        files = str(args.get("certificate_file") or ""), str(args.get("key_file") or "")
        try:
            args["certificate"], args["key"] = read_pair(*files)
        except SpecError as error:
            raise AnsibleActionFail(str(error)) from None
        return {**result, **self._execute_module(module_args=args, task_vars=task_vars or {})}
