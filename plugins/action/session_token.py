# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write a token that opens the apps of a session, from one task on the control node."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils._model.errors import as_phrase, as_sentence
from ..module_utils._model.printable import printable_line
from ..module_utils._model.validation import ValidationError
from ..plugin_utils._request.run_options import RunOptions
from ..plugin_utils.agent_calls import Asks, Failure
from ..plugin_utils.agent_program import GATEWAY
from ..plugin_utils.host_link import InventoryHosts
from ..plugin_utils.look_action import SESSION, LookAction

OPTIONS: dict[str, dict[str, Any]] = {
    "name": {"type": "str"},
    "id": {"type": "str"},
    "ttl": {"type": "str"},
    "path": {"type": "path"},
    "format": {"type": "str", "choices": ["text"]},
}

VARIABLES = {**SESSION, "ttl": "session_token_ttl", "path": "session_token_path"}

SECONDS = 60
"""The time limit of a gateway."""

ISSUED = ("session", "expires_at", "links")
"""What is returned of a token."""

Issued = Mapping[str, Any]
"""What a gateway has returned: the token, its session, when it expires, and the links of the session."""


class ActionModule(LookAction):
    options, variables = OPTIONS, VARIABLES

    def look(self, run: RunOptions, task_vars: Mapping[str, Any], *, style: str) -> dict[str, Any]:
        gateways = self._gateways(task_vars)
        with self.calls_of((GATEWAY,), task_vars) as (calls,):
            issued = _issue(calls, gateways, run)
        path, token = _absolute(run.token_path), issued.get("token")
        known = {name: issued[name] for name in ISSUED}
        if token is not None:
            self.write_report(str(path), record_of(known, token) if path.suffix == ".json" else f"{token}\n")
        for line in usage(path, known, token) if token is not None and style else ():
            # Not into Ansible's log.
            self._display.display(printable_line(line), screen_only=True)
        return {"changed": True, **known, "path": str(path)}

    def check(self, run: RunOptions) -> None:
        """Raise :class:`ValidationError` if there is no file to write."""
        option, path = VARIABLES["path"], run.token_path
        if not path:
            raise ValidationError(f"{option} is required.")
        target = _absolute(path)
        if target.is_dir():
            raise ValidationError(f"{option}: {path!r} must be a file, not a folder.")
        if not target.parent.is_dir() or not os.access(target.parent, os.W_OK | os.X_OK):
            raise ValidationError(f"{option}: {path!r} must be in an existing, writable folder.")

    def _gateways(self, variables: Mapping[str, Any]) -> list[str]:
        """Return the gateways that ``--limit`` does not hide. Raises :class:`AnsibleActionFail` without any."""
        group = str(self._templar.template(variables.get("gateway_group") or "gateways"))
        gateways = InventoryHosts(variables, self._loader).matching(group)
        shown = self.within_limit(gateways, variables)
        if not shown:
            lack = "hosts within --limit" if gateways else "hosts"
            raise AnsibleActionFail(f"gateway_group: {group!r} has no {lack}; a token is signed by a gateway.")
        return shown


def _issue(calls: Asks, gateways: Sequence[str], run: RunOptions) -> Issued:
    """Return the token of the first gateway that can be reached: each accepts those of all others.

    Raises :class:`AnsibleActionFail` with its error, or why none can be reached.
    """
    request = {"name": run.name, "session_id": run.id, "ttl": run.token_ttl}
    away: list[str] = []
    for name in gateways:
        answer = calls.ask("token", [name], lambda *_host: request, SECONDS)[name]
        if not isinstance(answer, Failure):
            return answer
        if not answer.unreachable:
            raise AnsibleActionFail(f"{name}: {as_sentence(answer.message)}")
        away.append(f"{name} is unavailable: {as_phrase(answer.message)}")
    raise AnsibleActionFail(f"no gateway can sign a token: {'; '.join(away)}.")


def _absolute(path: str) -> Path:
    return Path(path).expanduser().absolute()


def record_of(issued: Issued, token: str) -> str:
    """Return a token as JSON, with its session, its links and its end."""
    return json.dumps({"token": token, **{name: issued[name] for name in ISSUED}}, indent=1) + "\n"


def usage(path: Path, issued: Issued, token: str) -> list[str]:
    """Return the links of apps with the token, and how programs use it without exposing it in a command line."""
    until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(issued["expires_at"]))
    urls = {app["name"]: app["url"] for app in issued["links"]["apps"] if app["url"]}
    lines = [f"The token for session {issued['session']['name']} is in {path}. It is valid until {until}."]
    if urls:
        lines.append("Links for a browser, valid until then; whoever has one can use the session:")
        lines += [f"  {name:<16} {_add_token(url, token)}" for name, url in urls.items()]
    if urls and path.suffix != ".json":
        lines.append("For programs:")
        lines.append(f"  curl --header @<(printf 'Authorization: Bearer '; cat '{path}') {next(iter(urls.values()))}")
    return lines


def _add_token(url: str, token: str) -> str:
    page, mark, fragment = url.partition("#")
    return f"{page}{'&' if '?' in page else '?'}token={token}{mark}{fragment}"
