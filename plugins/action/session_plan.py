# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan a session from the facts of all agents, on the control node."""

from __future__ import annotations

import time
import uuid
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.backendai.cluster.plugins.module_utils._core.decision import decide
from ansible_collections.backendai.cluster.plugins.module_utils._core.placement import NoRoom
from ansible_collections.backendai.cluster.plugins.module_utils._core.plan import PlanError
from ansible_collections.backendai.cluster.plugins.module_utils._core.record import as_json, unplanned_record
from ansible_collections.backendai.cluster.plugins.module_utils._core.spec import (
    Pools,
    SpecError,
    comparable,
    spec_from_dict,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils.control import ControlAction


class ActionModule(ControlAction):
    """The action ``backendai.cluster.session_plan``."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        args = self._task.args
        spec, pools = spec_from_dict(args["spec"]), Pools(**args["pools"])
        readings = self.readings(args["agents"], task_vars or {})
        session_id = str(uuid.uuid4())
        try:
            decision = decide(spec, readings, pools, session_id, time.time())
        except (SpecError, PlanError) as error:
            sentence = str(error) if str(error).endswith(".") else f"{error}."
            self.write(args.get("record_path", ""), as_json(unplanned_record(spec, spec.name, "ERROR", error=sentence)))
            raise AnsibleActionFail(sentence) from None
        result |= {"changed": False, "warnings": self.warnings(readings), "nonce": uuid.uuid4().hex}
        if isinstance(decision, NoRoom):
            pending = {"reason": decision.reason, "shortfall": decision.shortfall}
            return {**result, "plan": None, "id": session_id, "agents": [], "pull_on": [], "pending": pending}
        new = "".join(f"{line}\n" for line in decision.plan.lines()) if not decision.known else ""
        return {
            **result,
            # A plan changes nothing; check mode says so of what would follow, so that --diff shows it.
            "changed": bool(new) and self._task.check_mode,
            "diff": {"before": "", "after": new},
            "plan": decision.plan.to_dict(),
            "id": decision.plan.id,
            "request": comparable(spec, decision.plan.id),
            "agents": decision.plan.agents,
            "pull_on": list(decision.pull_on),
            "public_keys": decision.public_keys,
            "pending": None,
        }
