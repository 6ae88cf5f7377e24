# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads the options that a user gives from a file.

They are data from beginning to end: variables of Ansible are templates, which run programs on the control node.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from typing import Any

from ..module_utils._model.strict_json import parse_json
from ..module_utils._model.validation import ValidationError, ValidationErrors
from .session_options import check_user_options

OPTION = "session_request_path"

MAX_BYTES = 1 << 20


def read_user_options(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options in the file that the variable ``session_request_path`` names, by their full names.

    There are none without such a file. Raises :class:`ValidationError` for an unreadable one, and for an option that
    users may not give, or that is among the ``variables``, too.
    """
    path = variables.get(OPTION)
    if path in (None, ""):
        return {}
    if not isinstance(path, str):
        raise ValidationError(f"{OPTION} must be the path of a file.")
    content = _read_file(path)
    try:
        options = parse_json(content)
    except ValueError:
        # Without the message of the parser, which may quote the file.
        raise ValidationError(f"{OPTION}: {path!r} is not JSON in UTF-8.") from None
    if not isinstance(options, dict):
        raise ValidationError(f"{OPTION}: {path!r} must contain a mapping of options.")
    problems = ValidationErrors()
    check_user_options(problems, options, variables)
    problems.raise_if_any()
    return options


def _read_file(path: str) -> bytes:
    """Return the content of a regular file that is not too large. Raises :class:`ValidationError`."""
    # Without waiting for the writer of a FIFO.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(os.path.expanduser(path), flags), "rb") as stream:
            regular = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
            content = stream.read(MAX_BYTES + 1) if regular else b""
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise ValidationError(f"{OPTION}: {path!r} cannot be read: {reason}.") from None
    except ValueError:
        raise ValidationError(f"{OPTION}: {path!r} is not a path.") from None
    if not regular:
        raise ValidationError(f"{OPTION}: {path!r} is not a regular file.")
    if len(content) > MAX_BYTES:
        raise ValidationError(f"{OPTION}: {path!r} is larger than {MAX_BYTES} bytes.")
    return content
