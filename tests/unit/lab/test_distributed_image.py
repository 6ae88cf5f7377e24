"""The image with the software for distributed work: its wheels, its configuration, and what stops its build."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lab import distributed_image
from tests.lab.command import LabError
from tests.lab.distributed_image import check_libraries, ensure_distributed_image, image_config, wheels_of
from tests.lab.engine import Engine
from tests.lab.identity import Lab


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("torch==2.13.0", True),
        ("torch==2.13", False),
        ("opt-einsum==3.4.0", True),
        ("jupyter.client==8.10.0", True),
        ("Flask==3.1.3", True),
        ("einsum==3.4.0", False),
    ],
)
def test_wheel_is_found_by_its_name_and_version(tmp_path: Path, line: str, found: bool) -> None:
    names = ("torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl", "opt_einsum-3.4.0-py3-none-any.whl")
    for name in (*names, "jupyter_client-8.10.0-py3-none-any.whl", "flask-3.1.3-py3-none-any.whl", "horovod-0123"):
        (tmp_path / name).touch()
    assert bool(wheels_of(tmp_path, line)) == found


def test_libraries_for_gpus_are_refused(tmp_path: Path) -> None:
    packages = tmp_path / "distributed/lib/python3.11/site-packages"
    (packages / "nvidia_ml_py-13.0.dist-info").mkdir(parents=True)
    check_libraries(packages.parents[2])
    (packages / "nvidia_cublas-13.1.dist-info").mkdir()
    with pytest.raises(
        LabError, match=r"^distributed of lab/distributed-cpu:1 has nvidia_cublas-13\.1\.dist-info: a CPU"
    ):
        check_libraries(packages.parents[2])


def test_containers_have_the_configuration_of_the_dockerfile() -> None:
    config = image_config()
    variables: Any = config.pop("Env")
    environment: dict[str, str] = dict(variable.split("=", 1) for variable in variables)
    assert config == {"Cmd": ["bash"], "User": "work", "WorkingDir": "/home/work"}
    assert environment["PATH"].startswith("/opt/distributed/bin:")
    assert environment["SPARK_HOME"].startswith("/opt/spark/")


def test_build_needs_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path)
    lab.folder.mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=40 << 30))
    with pytest.raises(LabError, match=r"has less than 45 GiB of free space for lab/distributed-cpu:1$"):
        ensure_distributed_image(Engine(lab, "unix:///nowhere"), lambda host: host.name)


def test_current_image_is_only_loaded_on_one_agent_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, loaded = Lab(tmp_path), []

    def load(*arguments: Any) -> None:
        loaded.append(arguments[3])

    monkeypatch.setattr(distributed_image, "load_archive", load)
    monkeypatch.setattr(distributed_image, "_build", None)
    lab.images.mkdir(parents=True)
    (lab.images / "distributed.tar").touch()
    (lab.images / "distributed.recipe").write_text(distributed_image.recipe_digest())
    ensure_distributed_image(Engine(lab, "unix:///nowhere"), lambda host: host.name)
    assert loaded == ["agent1", "agent2", "agent3"]
