"""Session images: their recipes, and how they are loaded on agents.

========================  ========================================================================
``lab/python:1``          Debian with Python and no sshd
``lab/busybox:1``         a static busybox
``lab/mpi:1``             the first, with Open MPI, an ssh and an sshd of its own, which is its command
``lab/entrypoint:1``      the first, with an entrypoint, a command and variables of its own, and settings that stop sshd
========================  ========================================================================
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.lab import image_archive, trees
from tests.lab.command import LabError, in_parallel, output, report, step
from tests.lab.engine import Engine
from tests.lab.identity import AGENTS, Host, Lab
from tests.lab.image_archive import Image, add_file, image_ids, write_archive
from tests.lab.image_cache import cached, writing
from tests.lab.leftovers import remove_folder
from tests.lab.trees import Tree

LOADER = Path(__file__).with_name("load_image.py")
MPI_PACKAGES = ("openmpi-bin", "openssh-client", "openssh-server")

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENTRY = Path(__file__).with_name("entry").read_bytes()
_BROKEN_OPENSSL = b"""openssl_conf = settings
[settings]
providers = providers
[providers]
other = other
[other]
module = /nowhere.so
activate = 1
"""
_OWN_START = {
    "Entrypoint": ["/usr/local/bin/entry"],
    "Cmd": ["sh", "-c", "echo image command runs as $(id -un) >> /tmp/command; exec sleep 100000"],
    "Env": [_PATH, 'TF_CONFIG={"image": 1}', "BACKENDAI_DIST_MASTER_PORT=31000"],
}


def session_images_file() -> str:
    """Return the archive's name in the cache, with a digest of the files that build the images."""
    recipe = (Path(path).read_bytes() for path in (__file__, image_archive.__file__, trees.__file__))
    return f"sessions-{hashlib.sha256(b''.join([*recipe, _ENTRY])).hexdigest()[:12]}.tar"


def link_session_images(lab: Lab) -> bool:
    """Make ``.lab/images/sessions.tar`` the archive of the cache; false if that has to be built."""
    archive = cached(lab, session_images_file())
    if archive:
        link = _archive(lab).with_suffix(".new")
        lab.images.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(archive)
        link.replace(_archive(lab))
    return archive is not None


def _archive(lab: Lab) -> Path:
    return lab.images / "sessions.tar"


def make_session_images(tree: Tree) -> None:
    """Write the archive of all images, given the base tree of Debian hosts, which is used up."""
    layers = tree.root.with_name("layers")
    remove_folder(layers)
    layers.mkdir()
    python, busybox, mpi, entry = (layers / f"{name}.tar" for name in ("python", "busybox", "mpi", "entry"))
    tree.pack(python)
    _pack_mpi(tree, mpi)
    _pack_busybox(tree, busybox)
    with tarfile.open(entry, "w") as tar:
        add_file(tar, "usr/local/bin/entry", _ENTRY, 0o755)
        add_file(tar, "etc/hosts.deny", b"ALL: ALL\n", 0o644)
        add_file(tar, "usr/lib/ssl/openssl.cnf", _BROKEN_OPENSSL, 0o644)
        folder = tarfile.TarInfo("run/sshd")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o777
        tar.addfile(folder)
    images = [
        Image("lab/python:1", (python,), {"Cmd": ["bash"], "Env": [_PATH]}),
        Image("lab/busybox:1", (busybox,), {"Cmd": ["sh"], "Env": [_PATH]}),
        Image("lab/mpi:1", (python, mpi), {"Cmd": ["/usr/sbin/sshd", "-D"], "Env": [_PATH]}),
        Image("lab/entrypoint:1", (python, entry), _OWN_START),
    ]
    with writing(tree.lab, session_images_file()) as archive:
        write_archive(archive, images)
    link_session_images(tree.lab)
    remove_folder(layers)
    remove_folder(tree.root)


def _pack_mpi(tree: Tree, layer: Path) -> None:
    """Install Open MPI, an SSH client and server, and write the added files into a layer."""
    stamp = layer.with_suffix(".stamp")
    stamp.touch()
    tree.apt("install", *MPI_PACKAGES)
    tree.pack(layer, newer=stamp)
    with tarfile.open(layer, "a") as tar:
        folder = tarfile.TarInfo("run/sshd")  # normally created by the service's unit
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)


def _pack_busybox(tree: Tree, layer: Path) -> None:
    """Write a layer with one static program, a link to it for each of its commands, and four empty folders."""
    root, unpacked = layer.with_name("busybox"), layer.with_name("busybox-package")
    tree.apt("install", "--download-only", "busybox-static")
    package = next((tree.root / "var/cache/apt/archives").glob("busybox-static_*.deb"))
    output("dpkg-deb", "-x", str(package), str(unpacked))
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
    """Load the images on each agent that lacks one or has a different one, in parallel."""
    if not _archive(engine.lab).exists():
        raise LabError("the lab is not up: run `python3 -m tests.lab up` first")
    with step("session images on all agents"):
        in_parallel(
            *(partial(load_archive, engine, _archive(engine.lab), host, container_name(host)) for host in AGENTS)
        )


def load_archive(engine: Engine, archive: Path, host: Host, container: str, timeout: float = 300) -> None:
    """Load the images of an archive on one agent, unless it has them all."""
    images = [f"{tag}={digest}" for tag, digest in image_ids(archive).items()]
    program = ("python3", "-c", LOADER.read_text(), *images)
    with archive.open("rb") as stream:
        result = engine.docker("exec", "--interactive", container, *program, stdin=stream, timeout=timeout).strip()
    if result == "no engine":
        raise LabError(f"{host.name} has no running Docker engine: provision it first (make lab does)")
    if result != "present":
        report(f"  {result} on {host.name}")
