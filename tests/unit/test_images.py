"""The recipes of images: their requirements, and what the Dockerfiles and the lab use of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.lab.distributed_image import LAYERS, RECIPES, read_section
from tests.unit.builders import REPOSITORY

FOLDER = REPOSITORY / "extensions" / "images"
NAMES = ("distributed-cpu", "distributed-cuda")
PINNED = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+")
# PyPI's PyTorch names CUDA's libraries, which a CPU build does not have.
CUDA = re.compile(r"(nvidia-(?!ml-py)|cuda-|triton==)")


def requirements_of(recipe: str) -> dict[str, list[str]]:
    """Return the lines of each section."""
    text = (FOLDER / recipe / "requirements.txt").read_text()
    return {name: read_section(name, FOLDER / recipe) for name in re.findall(r"^# (\w+): ", text, re.MULTILINE)}


def dockerfile(recipe: str) -> str:
    """Return a recipe's Dockerfile with each instruction in one line."""
    return (FOLDER / recipe / "Dockerfile").read_text().replace("\\\n", " ")


@pytest.mark.parametrize("recipe", NAMES)
def test_every_line_of_the_requirements_is_one_version_of_a_package(recipe: str) -> None:
    lines = [line for section in requirements_of(recipe).values() for line in section]
    assert len(lines) > 300
    assert [line for line in lines if not PINNED.fullmatch(line)] == []


@pytest.mark.parametrize("recipe", NAMES)
def test_what_the_versions_were_compiled_from_is_there_and_agrees_with_them(recipe: str) -> None:
    sections = requirements_of(recipe)
    text = (FOLDER / recipe / "requirements.txt").read_text()
    origins = dict(re.findall(r"^# (\w+): .*\n# from (.+)$", text, re.MULTILINE))
    assert origins.keys() == sections.keys() - {"uv", "torch", "build", "compiled"}
    # These are of the same resolution.
    sections["distributed"] += [*sections["torch"], *sections.get("compiled", [])]
    assert {*sections.get("build", [])} <= {*sections["distributed"]}
    for section, words in origins.items():
        versions = dict(line.split("==") for line in sections[section])
        assert [word for word in map(Requirement, words.split()) if versions[word.name] not in word.specifier] == []


def test_cpu_image_has_no_library_for_gpus() -> None:
    assert [line for lines in requirements_of("distributed-cpu").values() for line in lines if CUDA.match(line)] == []
    assert len([line for line in requirements_of("distributed-cuda")["distributed"] if CUDA.match(line)]) > 10


@pytest.mark.parametrize("recipe", NAMES)
def test_dockerfile_uses_files_that_exist_and_every_section(recipe: str) -> None:
    text = dockerfile(recipe)
    copied = [word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE) for word in line.split()]
    assert [word for word in copied if not (FOLDER / word).exists()] == []
    installed = {section for _environment, section in re.findall(r"install-environment (\w+) (\w+)", text)}
    assert installed | {"uv"} == requirements_of(recipe).keys()


@pytest.mark.parametrize("recipe", NAMES)
def test_containers_do_not_run_as_root(recipe: str) -> None:
    assert re.findall(r"^USER (.+)$", dockerfile(recipe), re.MULTILINE) == ["work"]


def test_lab_installs_the_sections_in_the_order_of_the_dockerfile() -> None:
    installed = re.findall(r"install-environment (\w+) (\w+)", dockerfile(NAMES[0]))
    of_image = [entry for entry in installed if entry != ("distributed", "build")]
    assert of_image == [(environment, section) for environment, sections in LAYERS for section in sections]


def make_script(folder: Path, uv_does: str) -> Path:
    """Return install-environment for environments below a folder, with the requirements of a recipe and another uv."""
    text = (FOLDER / "install-environment").read_text().replace("/opt/", f"{folder}/opt/")
    script, uv = folder / "install-environment", folder / "opt/uv/bin/uv"
    script.write_text(text.replace("/tmp/requirements.txt", str(RECIPES / "distributed-cpu/requirements.txt")))
    uv.parent.mkdir(parents=True)
    uv.write_text(f"#!/bin/sh\n{uv_does}\n")
    uv.chmod(0o755)
    return script


def test_an_environment_gets_the_lines_of_its_section(tmp_path: Path) -> None:
    (tmp_path / "opt/distributed").mkdir(parents=True)
    given = tmp_path / "given"
    script = make_script(tmp_path, f'while [ "$1" != --requirement ]; do shift; done; cat "$2" > {given}')
    subprocess.run(["sh", script, "distributed", "compiled", "--no-index"], check=True)
    assert [line for line in given.read_text().split("\n") if "==" in line] == read_section("compiled")


def test_a_section_that_is_not_there_is_no_empty_one(tmp_path: Path) -> None:
    script = make_script(tmp_path, "true")
    (tmp_path / "requirements.txt").write_text("# torch: the first layer\ntorch==2.13.0\n")
    install = ["sh", str(script), "distributed", "torhc"]
    build = [
        "sh",
        str(FOLDER / "compile-wheels"),
        "python3",
        str(tmp_path / "requirements.txt"),
        str(tmp_path / "wheels"),
    ]
    for command, section in ((install, "torhc"), (build, "compiled")):
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert (done.returncode, done.stderr.endswith(f"requirements.txt has no section {section}\n")) == (1, True)
    assert not (tmp_path / "opt/distributed").exists()


def test_a_package_that_two_environments_have_is_there_once(tmp_path: Path) -> None:
    script = make_script(tmp_path, "true")
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
        subprocess.run(["sh", script, site.parents[2].name, "nni"], check=True)
    assert [{path.name: path.is_symlink() for path in site.iterdir()} for site in sites] == [
        {"numpy": False, "six.py": False, "pyarrow": False},
        {"numpy": True, "six.py": False, "pyarrow": False},
    ]
    assert (sites[1] / "numpy").readlink() == sites[0] / "numpy"
