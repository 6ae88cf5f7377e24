"""Session images: what images on every agent are made of, and how they get there.

========================  ========================================================================
``lab/python:1``          Debian with Python and no sshd
``lab/busybox:1``         one static program
``lab/mpi:1``             the first, with Open MPI, an ssh and an sshd of its own, which is its command
``lab/entrypoint:1``      the first, with an entrypoint, a command and variables of its own
========================  ========================================================================
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.lab.command import LabError, output, step, tell, together
from tests.lab.engine import Engine
from tests.lab.identity import AGENTS, Host, Lab
from tests.lab.image_archive import Image, add_file, image_ids, write_archive
from tests.lab.leftovers import remove_folder
from tests.lab.trees import Tree

LOADER = Path(__file__).with_name("load_image.py")
MPI_PACKAGES = ("openmpi-bin", "openssh-client", "openssh-server")

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENTRY = b"""\
#!/bin/sh
export ENTRY=ran
echo "image entrypoint runs as $(id -un)" >> /tmp/entrypoint
exec "$@"
"""
_ENTRY_COMMAND = "echo image command runs as $(id -un) >> /tmp/command; exec sleep 100000"


def session_images_made(lab: Lab) -> bool:
    """Tell whether the file of the images is there; it appears whole or not at all."""
    return _archive(lab).exists()


def _archive(lab: Lab) -> Path:
    return lab.images / "sessions.tar"


def make_session_images(lab: Lab, layers: Path, packages: Path) -> None:
    """Write the file of all images, given a folder with the layers ``python`` and ``mpi``, and one of packages."""
    python, busybox, mpi, entry = (layers / f"{name}.tar" for name in ("python", "busybox", "mpi", "entry"))
    _pack_busybox(packages, busybox)
    with tarfile.open(entry, "w") as tar:
        add_file(tar, "usr/local/bin/entry", _ENTRY, 0o755)
    own = ["TF_CONFIG=" + '{"image":1}', "BACKENDAI_DIST_MASTER_PORT=31000"]
    started = {"Entrypoint": ["/usr/local/bin/entry"], "Cmd": ["sh", "-c", _ENTRY_COMMAND], "Env": [_PATH, *own]}
    lab.images.mkdir(exist_ok=True)
    write_archive(
        _archive(lab),
        [
            Image("lab/python:1", (python,), {"Cmd": ["bash"], "Env": [_PATH]}),
            Image("lab/busybox:1", (busybox,), {"Cmd": ["sh"], "Env": [_PATH]}),
            Image("lab/mpi:1", (python, mpi), {"Cmd": ["/usr/sbin/sshd", "-D"], "Env": [_PATH]}),
            Image("lab/entrypoint:1", (python, entry), started),
        ],
    )


def pack_layers(tree: Tree, layers: Path) -> None:
    """Write the base tree into a layer of a new folder, grow it, and write what that added into a second layer."""
    remove_folder(layers)
    layers.mkdir()
    tree.pack(layers / "python.tar")
    stamp, mpi = layers / "stamp", layers / "mpi.tar"
    stamp.touch()
    tree.apt("update")
    tree.apt("install", *MPI_PACKAGES)
    tree.pack(mpi, newer=stamp)
    with tarfile.open(mpi, "a") as tar:
        folder = tarfile.TarInfo("run/sshd")  # the service's unit would make it
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)


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


def load_session_images(engine: Engine, container_name: Callable[[Host], str]) -> None:
    """Load the images on each agent that lacks one, or has another one under its name; agents at the same time."""
    if not session_images_made(engine.lab):
        raise LabError("the lab is not up: run `python3 -m tests.lab up` first")
    with step("session images on all agents"):
        together(*(partial(_load_on, engine, host, container_name(host)) for host in AGENTS))


def _load_on(engine: Engine, host: Host, container: str) -> None:
    """Load the images on one agent, unless it has them all."""
    archive = _archive(engine.lab)
    wanted = [f"{tag}={digest}" for tag, digest in image_ids(archive).items()]
    program = ("python3", "-c", LOADER.read_text(), *wanted)
    with archive.open("rb") as stream:
        outcome = engine.docker("exec", "--interactive", container, *program, stdin=stream, timeout=300).strip()
    if outcome == "no engine":
        raise LabError(f"{host.name} has no running Docker engine: provision it first (make lab does)")
    if outcome != "present":
        tell(f"  {outcome} on {host.name}")
