# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask a gateway for a token, and write it where its user wants it."""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.backendai.cluster.plugins.module_utils._gateway.sealed import Reader
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import SpecError
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.token import TokenRequest, parse_token_request


class ActionModule(ActionBase):
    """The action ``backendai.cluster.session_token``."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        try:
            request = parse_token_request(self._task.args, task_vars or {})
            target = _target(request.path)
            reader = Reader()
        except SpecError as error:
            raise AnsibleActionFail(str(error)) from None
        except ImportError as error:
            raise AnsibleActionFail(f"a token needs the Python package cryptography here ({error}).") from None
        args = {**self._task.args, **_asked(request), "path": target, "reader": reader.address}
        said = self._execute_module(module_args=args, task_vars=task_vars or {})
        sealed = said.pop("sealed", None)
        result |= {**said, "path": target}
        if said.get("failed"):
            return result
        if sealed is not None:
            _write(target, f"{reader.open(sealed)}\n")
            for line in _usage(target, said):
                self._display.display(line)
        return result


def _asked(request: TokenRequest) -> dict[str, Any]:
    return {"name": request.name, "session_id": request.session_id, "ttl": request.seconds}


def _target(path: str) -> str:
    """Return the absolute path of the file; raises :class:`SpecError` where it cannot be."""
    target = os.path.abspath(os.path.expanduser(path))
    if os.path.isdir(target):
        raise SpecError(f"session_token_path: {path!r} must be a file, and is a folder.")
    folder = os.path.dirname(target)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        raise SpecError(f"session_token_path: {path!r} must be in a folder that exists and can be written to.")
    return target


def _write(target: str, content: str) -> None:
    """Write a file for its owner alone; it is there as a whole, or as it was before."""
    handle, staged = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".session-token-")
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(content)
        os.replace(staged, target)
    except OSError as error:
        os.unlink(staged)
        raise AnsibleActionFail(f"{target!r} cannot be written: {error.strerror}.") from None


def _usage(target: str, said: dict[str, Any]) -> list[str]:
    """Return how to use the token, in ways that put it into no command line."""
    until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(said["expires_at"]))
    urls = [app["url"] for app in said["links"]["apps"] if app["url"]]
    lines = [f"The token for session {said['session']['name']} is in {target}, and opens it until {until}."]
    if urls:
        lines.append(f"  curl --header @<(printf 'Authorization: Bearer '; cat '{target}') {urls[0]}")
        lines.append(f"  or in a browser, once: {urls[0]}?token=… with what the file holds")
    return lines
