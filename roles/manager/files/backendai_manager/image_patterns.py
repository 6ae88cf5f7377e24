# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Patterns of images, as a policy has them.

A pattern has the parts of an image's name, and each is compared with its own: host, path, tag and digest. So
``python:*`` is the repository of that name with any tag, and no host ``python`` with any port.
"""

from __future__ import annotations

import fnmatch
import re
from typing import NamedTuple

_DIGEST = re.compile(r"@[^/@]*$")
_TAG = re.compile(r":[^/:]*$")


class _Name(NamedTuple):
    """The parts of a name, or of a pattern; empty where there is none."""

    host: str
    path: str
    tag: str
    digest: str


def _parse(name: str) -> _Name:
    digest = match[0][1:] if (match := _DIGEST.search(name)) else ""
    name = _DIGEST.sub("", name)
    tag = match[0][1:] if (match := _TAG.search(name)) else ""
    repository = _TAG.sub("", name)
    first, slash, rest = repository.partition("/")
    # As in Docker: what has no dot, no port and no capital letter is no host, but a part of a path at Docker Hub.
    if slash and ("." in first or ":" in first or first == "localhost" or first != first.lower()):
        return _Name(first, rest, tag, digest)
    return _Name("", repository, tag, digest)


def matches(image: str, pattern: str) -> bool:
    """Return whether the name of an image is one of a pattern, in which ``*`` stands for anything within a part.

    A pattern that begins with ``*/``, or is ``*``, is for every host. One without a tag is for all tags and digests;
    one with a tag is for no digest, unless it has a pattern of these as well.
    """
    wanted, named = _parse(pattern), _parse(image)
    if wanted.path == "*" and not wanted.host:
        wanted, named = wanted._replace(path="*"), named._replace(host="")
    elif not wanted.host and wanted.path.startswith("*/"):
        wanted = wanted._replace(host="*", path=wanted.path[2:])
        named = named if named.host else named._replace(host="*")
    if not fnmatch.fnmatchcase(named.host, wanted.host) or not fnmatch.fnmatchcase(named.path, wanted.path):
        return False
    if not wanted.tag and not wanted.digest:
        return True
    if named.digest:
        return bool(wanted.digest) and fnmatch.fnmatchcase(named.digest, wanted.digest)
    return fnmatch.fnmatchcase(named.tag or "latest", wanted.tag or "")
