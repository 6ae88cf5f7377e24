"""Writes images into one file for `docker load`, without an engine.

So they have the same bytes and image ids on every agent, and do not appear in an engine that may be the
machine's own. A layer shared by several images is in the file once.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab.command import LabError

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_CREATED = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class Image:
    """An image: its name, its layers as tar files, lowest first, and the configuration of its containers."""

    tag: str
    layers: tuple[Path, ...]
    config: Mapping[str, object]


def write_archive(archive: Path, images: Sequence[Image]) -> None:
    """Write images in the format of `docker save`, atomically.

    An image id is the SHA-256 of its configuration, which contains those of the layers
    (https://github.com/moby/moby/blob/master/image/spec/v1.2.md).
    """
    digests = {layer: _digest(layer) for image in images for layer in image.layers}
    configs = [_config(image, [digests[layer] for layer in image.layers]) for image in images]
    manifest = [
        {
            "Config": _config_name(config),
            "RepoTags": [image.tag],
            "Layers": [f"{digests[layer]}/layer.tar" for layer in image.layers],
        }
        for image, config in zip(images, configs, strict=True)
    ]
    draft = archive.with_suffix(".new")
    with tarfile.open(draft, "w") as tar:
        add_file(tar, "manifest.json", json.dumps(manifest).encode())  # first, so that image_ids reads it quickly
        for config in configs:
            add_file(tar, _config_name(config), config)
        for layer, digest in digests.items():
            tar.add(layer, f"{digest}/layer.tar")
    draft.replace(archive)


def _digest(layer: Path) -> str:
    with layer.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _config(image: Image, digests: Sequence[str]) -> bytes:
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": _CREATED,
        "config": image.config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "history": [{"created": _CREATED, "comment": "made by tests.lab"} for _digest in digests],
    }
    return json.dumps(config, sort_keys=True).encode()


def _config_name(config: bytes) -> str:
    return f"{hashlib.sha256(config).hexdigest()}.json"


def add_file(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    """Add a file owned by root to an open tar file."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    tar.addfile(member, io.BytesIO(content))


def image_ids(archive: Path) -> dict[str, str]:
    """Return the ids of the images in a file, by name."""
    with tarfile.open(archive) as tar:
        member = tar.extractfile("manifest.json")
        if member is None:
            raise LabError(f"{archive} contains no image")
        return {image["RepoTags"][0]: f"sha256:{image['Config'].removesuffix('.json')}" for image in json.load(member)}
