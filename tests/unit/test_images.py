"""The recipes of images: their locks, their lists of software, and what the Dockerfiles use of both."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.gates.image_locks import CUDA, HOROVOD, RECIPES, software, split_locks
from tests.lab.distributed_image import LAYERS
from tests.unit.builders import REPOSITORY

FOLDER = REPOSITORY / "extensions" / "images"
PINNED = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+")


def locks_of(recipe: str) -> dict[str, list[str]]:
    """Return the lines of each lock."""
    return {path.stem: path.read_text().split() for path in (FOLDER / recipe / "locks").glob("*.txt")}


def dockerfile(recipe: str) -> str:
    """Return a recipe's Dockerfile with each instruction in one line."""
    return (FOLDER / recipe / "Dockerfile").read_text().replace("\\\n", " ")


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_line_of_a_lock_is_one_version_of_a_package(recipe: str) -> None:
    lines = [line for lock in locks_of(recipe).values() for line in lock]
    assert [line for line in lines if not PINNED.fullmatch(line)] == []


@pytest.mark.parametrize("recipe", RECIPES)
def test_locks_contain_what_their_environment_is_for(recipe: str) -> None:
    locks = locks_of(recipe)
    sources = {"distributed": FOLDER / recipe / "distributed.in"}
    sources |= {path.stem: path for path in (FOLDER / "requirements").glob("*.in")}
    for environment, source in sources.items():
        wanted = {re.split(r"[\[=<]", line)[0] for line in source.read_text().split()} - {"torch"}
        # What is compiled for PyTorch is installed last.
        installed = [*locks[environment], *(locks.get("compiled", []) if environment == "distributed" else [])]
        assert wanted <= {line.partition("==")[0] for line in installed}


def test_cpu_image_has_no_library_for_gpus() -> None:
    assert [line for lock in locks_of("distributed-cpu").values() for line in lock if CUDA.match(line)] == []
    cuda = [line for line in locks_of("distributed-cuda")["distributed"] if CUDA.match(line)]
    assert len(cuda) > 10
    locks = dict(split_locks([*cuda, "torch==1", "numpy==2", "deepspeed==3"], "distributed-cpu"))
    assert locks["distributed"] == ["numpy==2"]
    assert locks["compiled"] == ["deepspeed==3", HOROVOD]


@pytest.mark.parametrize("recipe", RECIPES)
def test_list_of_software_is_that_of_the_locks(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    listed = json.loads((FOLDER / recipe / "software.spdx.json").read_text())
    licences = {package["name"].lower(): package["licenseDeclared"] for package in listed["packages"]}
    assert software(recipe, licences) == listed
    identities = [package["SPDXID"] for package in listed["packages"]]
    assert len({*identities}) == len(identities)


@pytest.mark.parametrize("recipe", RECIPES)
def test_dockerfile_uses_files_that_exist_and_every_lock(recipe: str) -> None:
    text = dockerfile(recipe)
    copied = [word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE) for word in line.split()]
    assert [word for word in copied if not (FOLDER / word).exists()] == []
    assert {f"{name}.txt" for name in locks_of(recipe)} <= {Path(name).name for name in re.findall(r"\S+\.txt", text)}


@pytest.mark.parametrize("recipe", RECIPES)
def test_containers_do_not_run_as_root(recipe: str) -> None:
    assert re.findall(r"^USER (.+)$", dockerfile(recipe), re.MULTILINE) == ["work"]


def test_lab_installs_the_locks_in_the_order_of_the_dockerfile() -> None:
    installed = re.findall(
        r"install-environment (\w+)[^&\n]* --requirement /tmp/locks/(\w+)\.txt", dockerfile(RECIPES[0])
    )
    assert installed == [(environment, lock) for environment, locks in LAYERS for lock in locks]


def test_a_package_that_two_environments_have_is_there_once(tmp_path: Path) -> None:
    script = tmp_path / "install-environment"
    script.write_text((FOLDER / "install-environment").read_text().replace("/opt/", f"{tmp_path}/opt/"))
    uv = tmp_path / "opt/uv/bin/uv"
    uv.parent.mkdir(parents=True)
    uv.write_text("#!/bin/sh\n")
    uv.chmod(0o755)
    sites = [tmp_path / f"opt/{name}/lib/python3.11/site-packages" for name in ("distributed", "nni")]
    for site in sites:
        for file in ("numpy/__init__.py", "six.py"):
            path = site / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("the same in both")
        for file in ("numpy/__pycache__/__init__.pyc", "pyarrow/__init__.py"):
            path = site / file
            path.parent.mkdir()
            path.write_text(f"of {site}")
        subprocess.run(["sh", script, site.parents[2].name], check=True)
    assert [{path.name: path.is_symlink() for path in site.iterdir()} for site in sites] == [
        {"numpy": False, "six.py": False, "pyarrow": False},
        {"numpy": True, "six.py": False, "pyarrow": False},
    ]
    assert (sites[1] / "numpy").readlink() == sites[0] / "numpy"
