# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an agent keeps about the time and the use of its sessions that may end by them."""

from __future__ import annotations

from pathlib import Path

from .._host.deadline import read_uptime
from .._host.local_session import LocalSession
from .._host.processes import boot_id
from .._host.store import Store
from .._model.files import write_atomically
from .._model.state_format import StateFormat
from .._model.use import SessionUse
from .session_folder import READABLE

_FORMAT = StateFormat("the use", SessionUse)


def ends_by_time(session: LocalSession) -> bool:
    """Return whether a session may end because of its age, or because nobody uses it."""
    return session.committed and bool(session.plan.max_lifetime or session.plan.idle_timeout)


def read_use(store: Store, session_id: str) -> SessionUse | None:
    """Return the state after the last look; ``None`` before the first one, or if it cannot be read."""
    try:
        return _FORMAT.load(_file(store, session_id).read_bytes())
    except (OSError, ValueError):
        return None


def begin_use(store: Store, session: LocalSession) -> None:
    """Let the time of a session begin, if it may end by time and has not begun."""
    if ends_by_time(session) and read_use(store, session.plan.id) is None:
        save_use(store, session, SessionUse(boot_id(), read_uptime()))


def save_use(store: Store, session: LocalSession, use: SessionUse) -> None:
    """Save the state after a look, and the uptime at which the session ends, for the greeting of logins."""
    write_atomically(_file(store, session.plan.id), _FORMAT.dump(use))
    if not session.plan.max_lifetime:
        return
    ends = f"{int(use.uptime + session.plan.max_lifetime - use.lived)}\n"
    for kernel in session.kernels:
        folder = store.kernel_folder(session.plan.id, kernel.hostname)
        path = folder / "ends"
        if folder.is_dir() and not (path.exists() and path.read_text() == ends):
            write_atomically(path, ends, READABLE, durable=False)


def _file(store: Store, session_id: str) -> Path:
    return store.folder(session_id) / "use.json"
