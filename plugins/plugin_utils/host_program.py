# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that is installed on hosts: all code of this collection for hosts, in one archive that Python runs."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import yaml
from ansible.errors import AnsibleError

COLLECTION = Path(__file__).parents[2]
SOURCES = COLLECTION / "plugins" / "module_utils"
PACKAGE = "ansible_collections/backendai/cluster/plugins/module_utils"
LAUNCHER = SOURCES / "_program" / "launcher.py"


@functools.cache
def archive() -> bytes:
    """Return the program as a zip archive; the same sources always give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, content in _iter_files():
            # Reproducible: an entry without a date has the earliest one of the format, and it is not compressed because
            # the result of compression depends on the library.
            packed.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def program_digest() -> str:
    """Return the SHA-256 digest of the archive, which identifies it on hosts."""
    return _digest_of(archive())


@functools.lru_cache(maxsize=1)
def _digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@functools.cache
def launcher() -> bytes:
    """Return the source that a host's Python runs to find the program, or to install it."""
    return LAUNCHER.read_bytes()


@functools.cache
def release() -> str:
    """Return the version of this collection, from its manifest or, in a checkout, from ``galaxy.yml``."""
    manifest, galaxy = COLLECTION / "MANIFEST.json", COLLECTION / "galaxy.yml"
    try:
        if manifest.exists():
            return str(json.loads(manifest.read_text())["collection_info"]["version"])
        return str(yaml.safe_load(galaxy.read_text())["version"])
    except (OSError, ValueError, LookupError, yaml.YAMLError) as error:
        raise AnsibleError(f"the version of backendai.cluster cannot be read in {COLLECTION}: {error}") from error


def _iter_files() -> Iterator[tuple[str, bytes]]:
    yield "__main__.py", launcher()
    folders = PACKAGE.split("/")
    for depth in range(1, len(folders) + 1):
        yield "/".join([*folders[:depth], "__init__.py"]), b""
    for path in sorted(SOURCES.glob("_*/*.py")):
        yield f"{PACKAGE}/{path.relative_to(SOURCES).as_posix()}", path.read_bytes()
