# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Request a token from a gateway and write it to a file, or create the gateway's signing key."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from ..module_utils._model.files import write_atomically
from ..module_utils._model.printable import printable_data
from ..module_utils._model.validation import ValidationError, ValidationErrors
from ..plugin_utils._request.token import TokenRequest, parse_token_request
from ..plugin_utils.request_file import OPTION as REQUEST_PATH
from ..plugin_utils.request_file import read_user_options
from ..plugin_utils.session_options import check_unknown_variables

OPTIONS = {"session_name": "name", "session_id": "session_id", "session_token_ttl": "ttl"}
"""The options of the task by the variables that contain them."""


class ActionModule(ActionBase):
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        if self._task.args.get("state") == "ready":
            return {**result, **self._execute_module(task_vars=task_vars or {})}
        try:
            problems = ValidationErrors()
            check_unknown_variables(problems, task_vars or {})
            request = parse_token_request(problems, {**self._task.args, **self._user_options(task_vars or {})})
            problems.raise_if_any()
            target = _target(request.path)
        except ValidationError as error:
            raise AnsibleActionFail(str(error)) from None
        args = {**self._task.args, **_module_arguments(request), "path": str(target)}
        with self._suppress_output():
            answer = printable_data(self._execute_module(module_args=args, task_vars=task_vars or {}))
        token = answer.pop("token", None)
        # If Ansible cannot parse the output, it is returned here, with the token.
        answer.pop("module_stdout", None)
        if token is not None:
            record = {"token": token, **{name: answer[name] for name in ("session", "expires_at", "links")}}
            _write(target, json.dumps(record, indent=1) + "\n" if target.suffix == ".json" else f"{token}\n")
            for line in _usage(target, answer, token):
                # Not into Ansible's log.
                self._display.display(line, screen_only=True)
        return {**result, **answer, "path": str(target)}

    def _user_options(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the task that a user gives in the file of ``session_request_path``."""
        given = read_user_options({**variables, REQUEST_PATH: self._templar.template(variables.get(REQUEST_PATH))})
        return {option: given[name] for name, option in OPTIONS.items() if name in given}

    @contextlib.contextmanager
    def _suppress_output(self) -> Iterator[None]:
        """Suppress the gateway's output, which the connection prints with ``-vvv``.

        Connection errors are still printed.
        """
        context = self._connection._play_context
        before, context.no_log = context.no_log, True
        try:
            yield
        except AnsibleConnectionFailure:
            context.no_log = before
            self._low_level_execute_command(":")
            raise
        finally:
            context.no_log = before


def _module_arguments(request: TokenRequest) -> dict[str, Any]:
    return {"name": request.name, "session_id": request.session_id, "ttl": request.seconds}


def _target(path: str) -> Path:
    """Return the absolute path of the file. Raises :class:`ValidationError` if it cannot be written."""
    target = Path(path).expanduser().absolute()
    if target.is_dir():
        raise ValidationError(f"session_token_path: {path!r} must be a file, not a folder.")
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK | os.X_OK):
        raise ValidationError(f"session_token_path: {path!r} must be in an existing, writable folder.")
    return target


def _write(target: Path, content: str) -> None:
    """Write a file that only its owner can read, atomically."""
    try:
        write_atomically(target, content)
    except OSError as error:
        raise AnsibleActionFail(f"'{target}' cannot be written: {error.strerror}.") from None


def _usage(target: Path, answer: dict[str, Any], token: str) -> list[str]:
    """Return the links of apps with the token, and how programs use it without exposing it in a command line."""
    until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(answer["expires_at"]))
    urls = {app["name"]: app["url"] for app in answer["links"]["apps"] if app["url"]}
    lines = [f"The token for session {answer['session']['name']} is in {target}. It is valid until {until}."]
    if urls:
        lines.append("Links for a browser, valid until then; whoever has one can use the session:")
        lines += [f"  {name:<16} {_add_token(url, token)}" for name, url in urls.items()]
    if urls and target.suffix != ".json":
        lines.append("For programs:")
        lines.append(f"  curl --header @<(printf 'Authorization: Bearer '; cat '{target}') {next(iter(urls.values()))}")
    return lines


def _add_token(url: str, token: str) -> str:
    page, mark, fragment = url.partition("#")
    return f"{page}{'&' if '?' in page else '?'}token={token}{mark}{fragment}"
