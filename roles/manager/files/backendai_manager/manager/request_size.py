# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How large a request may be: the queue keeps it while it waits, and everybody's commands read the queue."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

MAX_BYTES = 64 << 10
"""How many bytes a request may have without its scripts."""

MAX_SCRIPT_BYTES = 256 << 10
"""How many bytes its scripts may have together."""

_SCRIPTS = ("session_bootstrap_script", "session_command", "session_stop_command")

# What each role gets a copy of.
_REPEATED = ("session_env", "session_resources")


def find_excess(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each limit of size that a request exceeds. Its options have their full names."""
    apps = request.get("session_apps")
    apps = [app for app in apps if isinstance(app, dict)] if isinstance(apps, list) else []
    scripts = sum(_size(request.get(name, "")) for name in _SCRIPTS) + sum(
        _size(app.get("command", "")) for app in apps
    )
    if scripts > MAX_SCRIPT_BYTES:
        yield (
            f"bootstrap_script, command, stop_command and the commands of apps have {scripts} bytes together; they may"
            f" have {MAX_SCRIPT_BYTES}: put them into the image, or into a folder."
        )
    roles = request.get("session_roles")
    copies = max(0, len(roles) - 1) if isinstance(roles, dict) else 0
    size = _size(request) - scripts + copies * sum(_size(request.get(name, {})) for name in _REPEATED)
    if size > MAX_BYTES:
        each = ", with env and resources for each role" if copies else ""
        yield f"the request has {size} bytes without its scripts{each}; it may have {MAX_BYTES}."


def _size(value: Any) -> int:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return len(text.encode(errors="replace"))
