# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes a pass over the queue: ends what is over, starts what waits, and sends gateways all routes."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail

from ...module_utils._model.errors import cause
from .session_run import SessionRun
from .settling import Settled


def schedule(run: SessionRun) -> list[Settled]:
    """Remove ended sessions, start those that wait as far as there is room, and return what has become of them."""
    try:
        passed = run.start_waiting(all_routes=True)
    except BaseException as error:
        run.release(cause(error))
        raise
    if run.site.rules.timer_interval and not run.site.check_mode:
        # What the pass has done is told all the same.
        try:
            run.site.queue.save_timer(run.site.rules.timer_interval)
        except AnsibleActionFail as error:
            run.outcome.warn(str(error))
    return passed
