"""Session images: ``lab/python:1`` and ``lab/busybox:1`` as files that `docker load` takes on any agent.

The files are written here rather than saved by an engine: the same bytes, and so the same image id, on every agent,
and no name taken in an engine that may be the machine's own.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.lab.command import LabError, output, step, tell, together
from tests.lab.engine import Engine
from tests.lab.identity import AGENTS, Host, Lab
from tests.lab.leftovers import remove_folder

LOADER = Path(__file__).with_name("load_image.py")
IMAGES = {"python": "lab/python:1", "busybox": "lab/busybox:1"}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def session_images_made(lab: Lab) -> bool:
    """Tell whether both files are there; each appears whole or not at all."""
    return all((lab.images / f"{name}.tar").exists() for name in IMAGES)


def make_session_images(lab: Lab, python_layer: Path, packages: Path) -> None:
    """Write both files: from the packed base tree, and from the busybox package of a folder of packages."""
    lab.images.mkdir(exist_ok=True)
    _write_image(lab.images / "python.tar", IMAGES["python"], python_layer, ["bash"])
    busybox_layer = python_layer.with_name("busybox.tar")
    _pack_busybox(packages, busybox_layer)
    _write_image(lab.images / "busybox.tar", IMAGES["busybox"], busybox_layer, ["sh"])


def _pack_busybox(packages: Path, layer: Path) -> None:
    """Write a layer with one static program, a link to it for each of its commands, and four empty folders."""
    root = layer.with_name("busybox")
    remove_folder(root)
    unpacked = layer.with_name("busybox-package")
    output("dpkg-deb", "-x", str(next(packages.glob("busybox-static_*.deb"))), str(unpacked))
    program = next(path for path in (unpacked / "bin/busybox", unpacked / "usr/bin/busybox") if path.exists())
    for folder in ("bin", "etc", "root", "tmp"):
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    (root / "root").chmod(0o700)
    shutil.copy2(program, root / "bin/busybox")
    for command in output(str(program), "--list").split():
        if command != "busybox":
            (root / "bin" / command).symlink_to("busybox")
    output("tar", "-C", str(root), "--sort=name", "--owner=0", "--group=0", "--mtime=@0", "-cf", str(layer), ".")


def _write_image(archive: Path, tag: str, layer: Path, command: list[str]) -> None:
    """Write an image of one layer in the format of `docker save`.

    The image id is the SHA-256 of its configuration, which holds that of the layer
    (https://github.com/moby/moby/blob/master/image/spec/v1.2.md).
    """
    with layer.open("rb") as stream:
        layer_digest = hashlib.file_digest(stream, "sha256").hexdigest()
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {"Cmd": command, "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
        "history": [{"created": "1970-01-01T00:00:00Z", "comment": "made by tests.lab"}],
    }
    config_bytes = json.dumps(config, sort_keys=True).encode()
    config_name = f"{hashlib.sha256(config_bytes).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [tag], "Layers": [f"{layer_digest}/layer.tar"]}]
    draft = archive.with_suffix(".new")
    with tarfile.open(draft, "w") as tar:
        _add_bytes(tar, "manifest.json", json.dumps(manifest).encode())  # first, so that image_id finds it at once
        _add_bytes(tar, config_name, config_bytes)
        tar.add(layer, f"{layer_digest}/layer.tar")
    draft.replace(archive)


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def image_id(archive: Path) -> str:
    """Return the id that an engine gives to the image of a file."""
    with tarfile.open(archive) as tar:
        member = tar.extractfile("manifest.json")
        if member is None:
            raise LabError(f"{archive} holds no image")
        return f"sha256:{json.load(member)[0]['Config'].removesuffix('.json')}"


def load_session_images(engine: Engine, container_name: Callable[[Host], str]) -> None:
    """Load the images on each agent that lacks them, or has another one under the name; agents at the same time."""
    if not session_images_made(engine.lab):
        raise LabError("the lab is not up: run `python3 -m tests.lab up` first")
    with step("session images on all agents"):
        together(*(partial(_load_on, engine, host, container_name(host)) for host in AGENTS))


def _load_on(engine: Engine, host: Host, container: str) -> None:
    """Load what is missing on one agent."""
    for name, tag in IMAGES.items():
        archive = engine.lab.images / f"{name}.tar"
        program = ("python3", "-c", LOADER.read_text(), tag, image_id(archive))
        with archive.open("rb") as stream:
            outcome = engine.docker("exec", "--interactive", container, *program, stdin=stream, timeout=300).strip()
        if outcome == "no engine":
            raise LabError(f"{host.name} has no running Docker engine: provision it first (make lab does)")
        if outcome == "loaded":
            tell(f"  {tag} loaded on {host.name}")
