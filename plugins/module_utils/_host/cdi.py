# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's GPUs as the Container Device Interface (CDI) names them.

Specifications are JSON or YAML, which Python cannot read by itself: there the lines that matter are looked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

KIND = "nvidia.com/gpu"

_KIND = re.compile(r"""^kind:\s*["']?nvidia\.com/gpu["']?\s*(#.*)?$""", re.MULTILINE)
_NAME = re.compile(r"""^[\s-]*name:\s*["']?(GPU-[^\s"'#]+)""", re.MULTILINE)


def named_gpus(folders: Iterable[str], root: Path = Path("/")) -> frozenset[str]:
    """Return the UUIDs of the GPUs that a container can be given by CDI.

    ``folders`` are those where the engine looks for specifications, below ``root``. A specification may name GPUs by
    their number alone; those are not among them, for numbers change. What cannot be read names none.
    """
    specs = (path for folder in folders for path in sorted((root / folder.lstrip("/")).glob("*")))
    return frozenset(uuid for path in specs for uuid in _named_in(path))


def _named_in(path: Path) -> list[str]:
    read = {".json": _in_json, ".yaml": _in_yaml}.get(path.suffix)
    try:
        return read(path.read_text()) if read else []
    except (OSError, ValueError, TypeError, LookupError):
        return []


def _in_json(text: str) -> list[str]:
    spec = json.loads(text)
    names = [str(device["name"]) for device in spec["devices"]] if spec["kind"] == KIND else []
    return [name for name in names if name.startswith("GPU-")]


def _in_yaml(text: str) -> list[str]:
    return _NAME.findall(text) if _KIND.search(text) else []
