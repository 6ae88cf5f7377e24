"""Makes images for tests, of a session image of the lab and one layer more, without an engine."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.laboratory import LAB, TIMEOUT, run_on_all, ssh
from tests.lab.image_archive import Image, write_archive


def archive_member(tar: tarfile.TarFile, name: str) -> bytes:
    """Return the content of a file in an archive."""
    stream = tar.extractfile(name)
    assert stream
    return stream.read()


def lab_image(tag: str, layer: Path) -> dict[str, Any]:
    """Write the lowest layer of a session image of the lab into a file, and return the image's configuration."""
    with tarfile.open(LAB.images / "sessions.tar") as lab:
        (source,) = (image for image in json.loads(archive_member(lab, "manifest.json")) if image["RepoTags"] == [tag])
        layer.write_bytes(archive_member(lab, source["Layers"][0]))
        return dict(json.loads(archive_member(lab, source["Config"]))["config"])


@contextmanager
def loaded_images(archive: Path, images: Sequence[Image], agents: Sequence[str]) -> Iterator[None]:
    """Load images into the engines of agents; remove them at the end."""
    write_archive(archive, images)
    tags = " ".join(image.tag for image in images)
    try:
        for agent in agents:
            with archive.open("rb") as stream:
                subprocess.run(ssh(agent, "docker load --quiet"), stdin=stream, check=True, timeout=TIMEOUT)
        yield
    finally:
        run_on_all(f"docker rmi --force {tags}", agents, check=False)


def entry(name: str, *, mode: int = 0o644, owner: int = 0, **fields: Any) -> tarfile.TarInfo:
    """Return an entry of a layer: a file, unless a ``type`` is given."""
    member = tarfile.TarInfo(name)
    member.mode, member.uid, member.gid = mode, owner, owner
    for field, value in fields.items():
        setattr(member, field, value)
    return member


def link(name: str, target: str) -> tarfile.TarInfo:
    """Return the entry of a symbolic link."""
    return entry(name, mode=0o777, type=tarfile.SYMTYPE, linkname=target)


def capable(name: str, size: int, capabilities: bytes) -> tarfile.TarInfo:
    """Return the entry of a program that has file capabilities, all bytes of which are below 128."""
    headers: Mapping[str, str] = {"SCHILY.xattr.security.capability": capabilities.decode("ascii")}
    return entry(name, mode=0o755, size=size, pax_headers=dict(headers))
