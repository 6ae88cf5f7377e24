# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that restores an agent's sessions: the collection's own code for agents, in one file that Python runs."""

from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "ansible_collections/backendai/cluster/plugins/module_utils"
SOURCES = Path(__file__).parents[1] / "module_utils"
PARTS = ("_docker", "_firewall", "_host", "_model", "_network", "_session", "_wireguard")
"""What is packed; what gateways and outsiders do is no reason for another program."""

START = """\
import sys

from ansible_collections.backendai.cluster.plugins.module_utils._session.restore import main

sys.exit(main())
"""


@functools.cache
def pack() -> bytes:
    """Return the program as a zip archive; the same sources always give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in _files():
            # Without a date of its own, an entry has the first one that the format knows; it is not compressed, because
            # what compression gives depends on the library.
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def _files() -> Iterator[tuple[str, str]]:
    yield "__main__.py", START
    folders = PACKAGE.split("/")
    for depth in range(1, len(folders) + 1):
        yield "/".join([*folders[:depth], "__init__.py"]), ""
    for path in sorted(path for part in PARTS for path in SOURCES.glob(f"{part}/*.py")):
        yield f"{PACKAGE}/{path.relative_to(SOURCES).as_posix()}", path.read_text(encoding="utf-8")


def version() -> str:
    """Return what tells this program from others: the digest of its bytes, which agents say of theirs."""
    return hashlib.sha256(pack()).hexdigest()
