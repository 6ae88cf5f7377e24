"""The image ``lab/distributed-cpu:1``: the recipe in extensions/images, built from packages and without an engine.

Wheels are kept in ``.cache/wheels``, so that only the first build downloads and compiles. The image is only made for
``make test-frameworks``: it is large.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import venv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.lab.command import LabError, output, run_logged, step
from tests.lab.debian import require
from tests.lab.engine import Engine
from tests.lab.identity import AGENTS, Host, Lab
from tests.lab.image_archive import Image, write_archive
from tests.lab.leftovers import end_processes, remove_folder
from tests.lab.session_images import load_archive
from tests.lab.trees import BUILDERS, Tree

TAG = "lab/distributed-cpu:1"
SUITE = "bookworm"
PYTHON = (3, 11)
RECIPES = Path(__file__).parents[2] / "extensions" / "images"
RECIPE = RECIPES / "distributed-cpu"
#: The layers in their order: the environment, and the sections of the requirements that are installed in it.
LAYERS = (
    ("distributed", ("torch", "distributed")),
    ("mlflow", ("mlflow",)),
    ("nni", ("nni",)),
    ("spark", ("spark",)),
    ("distributed", ("compiled",)),
)
#: In bytes. The image is there as layers, as an archive and in three engines.
FREE_SPACE = 45 << 30
#: In seconds, for a machine that is busy.
PATIENCE = 3600


def ensure_distributed_image(engine: Engine, container_name: Callable[[Host], str]) -> None:
    """Build the image unless it is current, and load it on one agent after the other, as each needs it twice."""
    archive = engine.lab.images / "distributed.tar"
    recipe, digest = archive.with_suffix(".recipe"), recipe_digest()
    if not (archive.exists() and recipe.exists() and recipe.read_text() == digest):
        if shutil.disk_usage(engine.lab.folder).free < FREE_SPACE:
            raise LabError(f"{engine.lab.folder} has less than {FREE_SPACE >> 30} GiB of free space for {TAG}")
        recipe.unlink(missing_ok=True)
        with step(f"{TAG}: wheels"):
            wheels = _collect_wheels(engine.lab)
        with step(f"{TAG}: image"):
            _build(engine, wheels, archive)
        recipe.write_text(digest)
    for host in AGENTS:
        with step(f"{TAG}: {host.name}"):
            load_archive(engine, archive, host, container_name(host), PATIENCE)


def recipe_digest() -> str:
    """Return a digest of the files that build the image."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in [*_files(RECIPES), *_files(RECIPE)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    files = (path for path in folder.iterdir() if path.is_file())
    yield from sorted(path for path in files if path.suffix in ("", ".txt"))  # not the documentation


def read_section(name: str, recipe: Path = RECIPE) -> list[str]:
    """Return the lines of a section of a recipe's requirements, such as ``torch==2.13.0``."""
    sections = (recipe / "requirements.txt").read_text().split("\n\n")
    (section,) = (text for text in sections if text.startswith(f"# {name}: "))
    return [line for line in section.split("\n") if line and not line.startswith("#")]


def _collect_wheels(lab: Lab) -> Path:
    """Download or build the wheels that are missing, and return their folder."""
    if sys.version_info[:2] != PYTHON:
        raise LabError(f"{TAG} needs wheels for Python {PYTHON[0]}.{PYTHON[1]}: make setup with that Python")
    folder = lab.checkout / ".cache" / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    sections = ["uv", *(section for _environment, names in LAYERS for section in names if section != "compiled")]
    # The environment of the tools has no package that the older way of building needs.
    options = ("--disable-pip-version-check", "--no-cache-dir", "--no-deps", "--use-pep517")
    pip = (sys.executable, "-m", "pip", "wheel", *options)
    into = ("--wheel-dir", str(folder))
    for section in sections:  # each by itself, because two may have different versions of a package
        if missing := [line for line in read_section(section) if not wheels_of(folder, line)]:
            run_logged(lab.logs / f"wheels-{section}.log", *pip, *into, *missing, timeout=PATIENCE)
    _compile_wheels(lab, folder)
    return folder


def wheels_of(folder: Path, line: str) -> list[Path]:
    """Return the wheels of a package; a version may have a suffix for the build, such as ``+cpu``."""
    name, _equals, version = line.partition("==")
    escaped = re.escape(re.sub(r"[-_.]+", "_", name))
    pattern = re.compile(rf"{escaped}-{re.escape(version)}(\+[\w.]+)?-.+\.whl", re.IGNORECASE)
    return [path for path in folder.iterdir() if pattern.fullmatch(re.sub(r"^[^-]+", _underscored, path.name))]


def _underscored(match: re.Match[str]) -> str:
    return match[0].replace(".", "_")


def _compile_wheels(lab: Lab, folder: Path) -> None:
    """Build the wheels that hold code for this PyTorch, unless they are there: it takes minutes."""
    script, requirements = RECIPES / "compile-wheels", RECIPE / "requirements.txt"
    compiled, torch, build = (read_section(name) for name in ("compiled", "torch", "build"))
    text = "\n".join([script.read_text(), *compiled, *torch])
    stamp = folder / f"compiled-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if stamp.exists() and all(wheels_of(folder, line) for line in compiled):
        return
    require("cmake", "g++")
    environment, log = lab.folder / "compile", lab.logs / "compile.log"
    venv.create(environment, with_pip=True, clear=True)
    python = str(environment / "bin/python")
    options = ("--disable-pip-version-check", "install", "--no-cache-dir", "--no-deps", "--find-links", str(folder))
    run_logged(log, python, "-m", "pip", *options, *torch, *build, timeout=PATIENCE)
    for wheel in [wheel for line in compiled for wheel in wheels_of(folder, line)]:
        wheel.unlink()
    run_logged(log, str(script), python, str(requirements), str(folder), env={**os.environ}, timeout=PATIENCE)
    remove_folder(environment)
    stamp.touch()


def _build(engine: Engine, wheels: Path, archive: Path) -> None:
    """Write the image's archive."""
    require("mmdebstrap")
    end_processes(engine.lab, BUILDERS)  # of a killed run
    tree = Tree(engine.lab, SUITE, "distributed")
    tree.create_base(engine, pull=False)
    (tree.root / "usr/share/man/man1").mkdir(parents=True, exist_ok=True)  # where Java's package makes links
    tree.apt("install", *(RECIPES / "debian-packages.txt").read_text().split())
    tree.run_in("useradd", "--create-home", "--shell", "/bin/bash", "--uid", "1000", "work")
    shutil.copy2(RECIPES / "install-environment", tree.root / "usr/local/bin")
    shutil.copy2(RECIPE / "requirements.txt", tree.root / "tmp")
    tree.run_in("python3", "-m", "venv", "/opt/uv")
    install = ("/opt/uv/bin/pip", "install", "--quiet", "--no-index", "--find-links", "/mnt")
    tree.run_in(*install, *read_section("uv"), mounted=wheels)
    layers = [tree.root.with_name("distributed-base.tar")]
    tree.pack(layers[0])
    for environment, sections in LAYERS:
        layers.append(_pack_environment(tree, wheels, environment, sections))
    write_archive(archive, [Image(TAG, tuple(layers), image_config())])
    for layer in layers:
        layer.unlink()
    remove_folder(tree.root)


def _pack_environment(tree: Tree, wheels: Path, environment: str, sections: Sequence[str]) -> Path:
    """Install sections in an environment, and write a layer of what is new in it."""
    layer = tree.root.with_name(f"distributed-{sections[-1]}.tar")
    stamp = layer.with_suffix(".stamp")
    stamp.touch()
    for section in sections:
        install = ("install-environment", environment, section, "--no-index", "--find-links", "/mnt")
        tree.run_in(*install, mounted=wheels, timeout=PATIENCE)
    check_libraries(tree.root / "opt" / environment)
    # By the time of the inode's change: unpacked files have times of their own.
    pack = ("tar", "-C", str(tree.root), "--sort=name", "--numeric-owner", f"--newer={stamp}", "-cf", str(layer))
    output(*pack, f"./opt/{environment}", timeout=PATIENCE)
    return layer


def check_libraries(environment: Path) -> None:
    """Raise LabError if an environment has libraries for GPUs: they would be gigabytes that no CPU can use."""
    paths = environment.glob("lib/python*/site-packages/nvidia_*.dist-info")
    # That one reads what a driver reports, and has no library.
    packages = sorted(path.name for path in paths if not path.name.startswith("nvidia_ml_py"))
    if packages:
        raise LabError(f"{environment.name} of {TAG} has {', '.join(packages)}: a CPU build of PyTorch has none")


def image_config() -> dict[str, object]:
    """Return the configuration of containers, as the Dockerfile has it."""
    instructions = re.findall(r"^(ENV|USER|WORKDIR|CMD) (.+)$", (RECIPE / "Dockerfile").read_text(), re.MULTILINE)
    settings = dict(instructions)
    variables = [value for instruction, value in instructions if instruction == "ENV"]
    return {
        "Cmd": json.loads(settings["CMD"]),
        "Env": variables,
        "User": settings["USER"],
        "WorkingDir": settings["WORKDIR"],
    }
