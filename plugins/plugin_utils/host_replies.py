# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the program on hosts returns for each phase: a reply of another shape is an error of that host alone.

Fields are those that the control node reads. Others are left out: of another phase, they may have any shape.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from ..module_utils._model.errors import as_phrase
from ..module_utils._model.held_session import ContainerState, PublicKeys
from ..module_utils._model.images import ImageIdentity
from ..module_utils._model.plain_data import from_plain
from ..module_utils._model.plan import SessionPlan
from ..module_utils._model.reported_traffic import ReportedTraffic
from ..module_utils._model.timestamp import is_time

NO_REASON = "it failed, and gave no reason."
"""What is said of a host that says that something failed, without a text."""


@dataclasses.dataclass(frozen=True)
class _Diff:
    """Not extensible: Ansible obeys other keys of a difference, such as whose it is."""

    before: str
    after: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Reply:
    extensible: ClassVar[bool] = True

    changed: bool = False
    diff: _Diff | None = None
    warnings: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Survey(_Reply):
    agent: dict[str, Any] | None
    error: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Cordon(_Reply):
    cordoned_before: bool
    description: str
    sessions: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _SessionReply:
    extensible: ClassVar[bool] = True

    steps: tuple[str, ...] = ()
    public_keys: dict[str, PublicKeys] | None = None
    containers: dict[str, ContainerState] | None = None
    refused: str | None = None
    failed: str | None = None
    grace_exceeded: bool = False
    lost_output: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    starting: bool = False
    printed: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Sessions(_Reply):
    sessions: dict[str, _SessionReply]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Pull(_Reply):
    images: dict[str, ImageIdentity]
    under_way: tuple[str, ...]
    started: bool = False
    progress: str | None = None
    size: int = 0


@dataclasses.dataclass(frozen=True)
class _RemovedImage:
    name: str
    size: int
    unused_days: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Prune(_Reply):
    removed: tuple[_RemovedImage, ...]
    kept: tuple[str, ...]
    folder: str
    free_before: int
    free: int


@dataclasses.dataclass(frozen=True)
class _End:
    grace_exceeded: bool = False
    lost_output: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Reap(_Reply):
    failures: dict[str, str]
    ends: dict[str, _End] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Wait(_Reply):
    ended: bool
    exit_code: int | None


@dataclasses.dataclass(frozen=True)
class _Drift:
    subject: str
    actual: str | None
    expected: str | None


@dataclasses.dataclass(frozen=True)
class _Checks:
    """What is known of a pair of containers."""

    extensible: ClassVar[bool] = True

    source: str
    to: str
    name: bool | None
    tcp: bool | None
    frame: bool | None
    ssh: bool | None
    ssh_error: str | None = None


@dataclasses.dataclass(frozen=True)
class _VerifiedPart:
    extensible: ClassVar[bool] = True

    plan: SessionPlan
    committed: bool
    expired: bool
    containers: dict[str, ContainerState]
    drift: tuple[_Drift, ...]
    pairs: tuple[_Checks, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Verify(_Reply):
    parts: tuple[_VerifiedPart, ...]
    error: str | None


@dataclasses.dataclass(frozen=True)
class _Logs:
    """The lines of each log as JSON text."""

    extensible: ClassVar[bool] = True

    log: str
    apps: dict[str, str]
    error: str | None


@dataclasses.dataclass(frozen=True)
class _LoggedPart:
    extensible: ClassVar[bool] = True

    id: str
    batch: bool
    containers: dict[str, ContainerState]
    logs: dict[str, _Logs]
    ended_at: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ReadLogs(_Reply):
    parts: tuple[_LoggedPart, ...]
    error: str | None


@dataclasses.dataclass(frozen=True)
class _Sight:
    extensible: ClassVar[bool] = True

    marker: bool
    names: str
    folder: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Marker(_Reply):
    created: tuple[str, ...] = ()
    observed: dict[str, dict[str, _Sight]] | None = None
    leftover: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class _SshLink:
    host: str
    port: int | None


@dataclasses.dataclass(frozen=True)
class _AppLink:
    extensible: ClassVar[bool] = True

    name: str
    protocol: str
    url: str | None


@dataclasses.dataclass(frozen=True)
class _Link:
    extensible: ClassVar[bool] = True

    id: str
    name: str
    ssh: _SshLink | None
    apps: tuple[_AppLink, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Routes(_Reply):
    links: tuple[_Link, ...]
    unrouted: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _SessionName:
    id: str
    name: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Token(_Reply):
    session: _SessionName
    links: _Link
    expires_at: int
    token: str | None = None

    def __post_init__(self) -> None:
        if not is_time(self.expires_at):
            raise ValueError("expires_at is not in the years 1970 to 9999")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _FirewallTraffic(_Reply):
    mode: str
    traffic: tuple[ReportedTraffic, ...]
    unlisted: int
    storage: tuple[ReportedTraffic, ...] = ()


_REPLIES: Mapping[str, type[_Reply]] = {
    "survey": _Survey,
    "cordon": _Cordon,
    "start": _Sessions,
    "remove": _Sessions,
    "pull": _Pull,
    "prune": _Prune,
    "reap": _Reap,
    "wait": _Wait,
    "verify": _Verify,
    "logs": _ReadLogs,
    "marker": _Marker,
    "routes": _Routes,
    "token": _Token,
    "firewall_traffic": _FirewallTraffic,
}


def check_reply(phase: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a result that its phase has, all of them for a phase that is not listed.

    Whatever has failed without a text says so. Raises :class:`DataError`, one sentence with the field, unless the
    result has the shape that its phase returns.
    """
    shaped = result
    if phase == "verify" and isinstance(result.get("parts"), list):
        shaped = {**result, "parts": [_with_source(part) for part in result["parts"]]}
    kind = _REPLIES.get(phase, _Reply)
    reply = from_plain(kind, shaped, "the reply of this host is damaged")
    for part in reply.parts if isinstance(reply, _Verify) else ():
        part.plan.check()
    if phase not in _REPLIES:
        return dict(result)
    known = {field.name for field in dataclasses.fields(kind)}
    checked = {name: value for name, value in result.items() if name in known}
    if isinstance(reply, _Sessions):
        checked["sessions"] = {name: _with_reason(session) for name, session in result["sessions"].items()}
    if isinstance(reply, _Reap):
        checked["failures"] = {name: reason_in(text) for name, text in result["failures"].items()}
    return checked


def reason_in(text: object) -> str:
    """Return what a host says about a failure, which may be nothing."""
    return str(text) if text is not None and as_phrase(text) else NO_REASON


def _with_reason(session: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**session, "failed": reason_in(session["failed"])} if "failed" in session else session


def _with_source(part: Any) -> Any:
    """Return a part with ``from`` of its pairs renamed, because it is a keyword of Python."""
    if not isinstance(part, dict) or not isinstance(part.get("pairs"), list):
        return part
    pairs = [{**pair, "source": pair.get("from")} if isinstance(pair, dict) else pair for pair in part["pairs"]]
    return {**part, "pairs": pairs}
