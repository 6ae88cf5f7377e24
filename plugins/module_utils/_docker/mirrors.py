# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Registry mirrors in the configuration of a host's engine, beside what its operator has there.

The engine reads mirrors again when it is told to (``systemctl reload``), and no container notices. What it does not
take is undone at once: an engine with a bad configuration would not start again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._host.engine_settings import EngineSettings, read_engine_settings
from .._host.host_record import RECORD, EngineFile, HostRecord, read_record, write_record
from .._model.change import Change
from .._model.errors import ClusterError
from .._model.files import write_atomically
from .._model.strict_json import parse_json
from .sdk import docker

UNIT = "docker.service"
MIRRORS = "registry-mirrors"
RELOAD_SECONDS = 10.0

# The engine allows nothing else: with a path, a query or a user it does not start.
_MIRROR = re.compile(r"https?://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?/?")


class MirrorError(ClusterError):
    """The mirrors cannot be set; nothing is changed then. The message is one sentence."""


@dataclasses.dataclass(frozen=True)
class MirrorChange:
    """A change of the engine's configuration: the ``settings`` after it, and what the record of the host is to say."""

    change: Change
    settings: Mapping[str, Any]
    record: EngineFile


def parse_mirrors(values: Iterable[str]) -> list[str]:
    """Return mirrors without a slash at their end, each once. Raises :class:`MirrorError`."""
    for value in values:
        if not _MIRROR.fullmatch(value):
            raise MirrorError(
                f"agent_registry_mirrors: {value!r} must be http:// or https://, a host and possibly a port"
            )
    return list(dict.fromkeys(map(_normalized, values)))


def set_mirrors(
    client: docker.APIClient | None, wanted: Sequence[str], *, check_mode: bool, record_path: Path = RECORD
) -> list[Change]:
    """Make the wanted mirrors the engine's first ones, note what was there in the host's record, and return changes.

    Without any, what was added before is taken away. Without a ``client`` there is no engine any more. Raises
    :class:`MirrorError` and :class:`DamagedRecordError`.
    """
    record = read_record(record_path) or HostRecord()
    if not wanted and record.engine is None:
        return []
    path = find_configuration(read_engine_settings() if client else EngineSettings(), wanted)
    planned = plan_mirrors(record.engine.path if record.engine else path, wanted, record.engine)
    if not check_mode:
        if planned:
            # First, so that what a killed run has written can be taken away.
            write_record(dataclasses.replace(record, engine=planned.record), record_path)
            _apply(client, planned, record, record_path)
        if not wanted:
            write_record(dataclasses.replace(record, engine=None), record_path)
    return [planned.change] if planned else []


def _apply(client: docker.APIClient | None, planned: MirrorChange, before: HostRecord, record_path: Path) -> None:
    if client is None:
        write_configuration(planned)
        return
    try:
        apply_mirrors(client, planned)
    except MirrorError:
        write_record(before, record_path)
        raise


def find_configuration(settings: EngineSettings, wanted: Sequence[str]) -> str:
    """Return the path of the engine's configuration.

    Raises :class:`MirrorError` if mirrors are wanted and it has some on its command line: it would not start with both.
    """
    if wanted and settings.mirrors:
        raise MirrorError(
            "agent_registry_mirrors: the engine of this host has --registry-mirror on its command line, and does not"
            f" start with both: move that to {settings.file}"
        )
    return settings.file


def plan_mirrors(path: str, wanted: Sequence[str], record: EngineFile | None) -> MirrorChange | None:
    """Return the change that makes the wanted mirrors the engine's first ones, ``None`` if they are.

    What the collection has added before goes, and what others have in the file stays. Raises :class:`MirrorError`.
    """
    text = _read(path)
    settings = _parse(path, text)
    ours = record.mirrors if record else ()
    before = settings.get(MIRRORS, [])
    others = [mirror for mirror in before if _normalized(mirror) not in ours]
    there = {*map(_normalized, others)}
    after = [*(mirror for mirror in wanted if mirror not in there), *others]
    if after == before:
        return None
    added = tuple(mirror for mirror in wanted if mirror not in there)
    remaining = {name: value for name, value in settings.items() if name != MIRRORS}
    if after:
        remaining[MIRRORS] = after
    first = record or EngineFile(path, text, Path(path).parent.is_dir(), ())
    shown = [", ".join(mirrors) or None for mirrors in (before, after)]
    return MirrorChange(
        Change(f"registry mirrors in {path}", *shown), remaining, dataclasses.replace(first, mirrors=added)
    )


def apply_mirrors(client: docker.APIClient, planned: MirrorChange) -> None:
    """Write the engine's configuration and let it read that. Raises :class:`MirrorError`; then it is as it was."""
    path, before = planned.record.path, _read(planned.record.path)
    # Without the setting, the engine would keep the mirrors that it has.
    mirrors = planned.settings.get(MIRRORS, [])
    _write(path, _format({**planned.settings, MIRRORS: mirrors}))
    if _takes(client, mirrors):
        write_configuration(planned)
        return
    _write(path, before)
    _reload()
    raise MirrorError(
        f"agent_registry_mirrors: the engine did not take them, so {path} is as it was: journalctl -u {UNIT} says why"
    )


def write_configuration(planned: MirrorChange) -> None:
    """Write the engine's configuration; what equals the one of before is written as that was."""
    record = planned.record
    if record.mirrors or planned.settings != _parse(record.path, record.text):
        _write(record.path, _format(planned.settings))
        return
    _write(record.path, record.text)
    if record.text is None and not record.folder:
        with contextlib.suppress(OSError):
            Path(record.path).parent.rmdir()


def _format(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, indent=2) + "\n"


def _takes(client: docker.APIClient, mirrors: Iterable[str]) -> bool:
    """Let the engine read its configuration, and return whether it has these mirrors then."""
    wanted, until = [*map(_normalized, mirrors)], time.monotonic() + RELOAD_SECONDS
    if not _reload():
        return False
    while True:
        present = (client.info().get("RegistryConfig") or {}).get("Mirrors") or []
        if [*map(_normalized, present)] == wanted:
            return True
        if time.monotonic() > until:
            return False
        time.sleep(0.1)


def _reload() -> bool:
    return subprocess.run(["systemctl", "reload", UNIT], check=False, capture_output=True).returncode == 0


def _normalized(mirror: str) -> str:
    return mirror.rstrip("/")


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise MirrorError(f"agent_registry_mirrors: {path} cannot be read ({error})") from None


def _parse(path: str, text: str | None) -> dict[str, Any]:
    """Return the settings in a configuration; an empty file has none."""
    try:
        settings = parse_json(text) if text and text.strip() else {}
    except ValueError as error:
        raise MirrorError(f"agent_registry_mirrors: {path} is not JSON ({error}): correct it first") from None
    mirrors = settings.get(MIRRORS, []) if isinstance(settings, dict) else None
    if not isinstance(mirrors, list) or not all(isinstance(mirror, str) for mirror in mirrors):
        raise MirrorError(f"agent_registry_mirrors: {path} has no settings in the form of the engine: correct it first")
    return dict(settings)


def _write(path: str, text: str | None) -> None:
    """Write a file with the mode that it has, or remove it."""
    file = Path(path)
    if text is None:
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_atomically(file, text, file.stat().st_mode & 0o777 if file.exists() else 0o644)
