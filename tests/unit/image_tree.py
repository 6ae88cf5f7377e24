"""The files of an image, as a mapping of paths, and the engine's answers about them."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import posixpath
import tarfile
from collections.abc import Mapping
from pathlib import PurePosixPath

from ansible_collections.backendai.cluster.plugins.module_utils._model.image_paths import (
    DEVICE,
    FIFO,
    FILE,
    FOLDER,
    LINK,
    SOCKET,
    Entry,
)

# The bits of Go's file modes.
_BITS = {FILE: 0, FOLDER: 1 << 31, LINK: 1 << 27, DEVICE: 1 << 26, FIFO: 1 << 25, SOCKET: 1 << 24}
_TYPES = {FOLDER: tarfile.DIRTYPE, LINK: tarfile.SYMTYPE, DEVICE: tarfile.CHRTYPE, FIFO: tarfile.FIFOTYPE}


@dataclasses.dataclass(frozen=True)
class Node:
    """A path of an image; ``target`` is that of a link."""

    kind: str = FILE
    content: bytes = b""
    target: str = ""
    mode: int = 0o755
    uid: int = 0
    gid: int = 0


NODE = Node(FOLDER)


def link(target: str) -> Node:
    """Return a link."""
    return Node(LINK, target=target)


def file(content: str | bytes = "") -> Node:
    """Return a regular file."""
    return Node(FILE, content if isinstance(content, bytes) else content.encode(), mode=0o644)


class ImageTree(dict[str, Node]):
    """The nodes of an image by path; folders above them are made. ``asked`` are the paths that were looked at."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        super().__init__({"/": NODE})
        for path, node in nodes.items():
            self[path] = node
            for above in PurePosixPath(path).parents:
                self.setdefault(str(above), NODE)
        self.asked: list[str] = []

    def look(self, path: str) -> Entry | None:
        """Return what a path is. It must not lead through a link: an engine would follow that."""
        self.asked.append(path)
        for above in map(str, PurePosixPath(path).parents):
            assert above not in self or self[above].kind == FOLDER, f"{path} was looked at through {above}"
        node = self.get(path)
        return Entry(node.kind, node.mode, len(node.content), node.target) if node else None

    def stat_header(self, path: str) -> str | None:
        """Return the engine's header about a path; ``None`` if it is nothing."""
        entry = self.look(path)
        if entry is None:
            return None
        stat = {"name": posixpath.basename(path), "size": entry.size, "mode": _BITS[entry.kind] | entry.mode}
        return base64.b64encode(json.dumps({**stat, "linkTarget": entry.target}).encode()).decode()

    def archive(self, path: str) -> bytes:
        """Return the engine's archive of a path with all that is below it."""
        base, target = posixpath.basename(path) or "/", io.BytesIO()
        with tarfile.open(fileobj=target, mode="w") as archive:
            for at, node in sorted(self.items()):
                if at == path or at.startswith(f"{path.rstrip('/')}/"):
                    member = tarfile.TarInfo(posixpath.join(base, posixpath.relpath(at, path)).removesuffix("/."))
                    member.type, member.linkname = _TYPES.get(node.kind, tarfile.REGTYPE), node.target
                    member.mode, member.uid, member.gid, member.size = node.mode, node.uid, node.gid, len(node.content)
                    archive.addfile(member, io.BytesIO(node.content))
        return target.getvalue()


ORDINARY = {
    "/etc/passwd": file("root:x:0:0:root:/root:/bin/sh\n"),
    "/etc/group": file("root:x:0:\n"),
    "/etc/hosts": file(),
    "/etc/hostname": file(),
    "/etc/resolv.conf": file(),
    "/bin/sh": file(),
    "/usr/bin/env": file(),
}
"""The files of an image without anything odd, without SSH and without a home."""


def image_with(nodes: Mapping[str, Node]) -> ImageTree:
    """Return an ordinary image with these nodes in it."""
    return ImageTree({**ORDINARY, **nodes})
