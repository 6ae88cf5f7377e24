"""What the role ``accelerator`` finds on a host, and what it says is missing."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.template import Templar, trust_as_template

from tests.unit.builders import REPOSITORY
from tests.unit.rendering import templar

ROLE = REPOSITORY / "roles/accelerator"
SETTINGS = '{"features": {"cdi": true}}\n'
OLD = {"ContainersRunning": 0}
OFF = {"ContainersRunning": 0, "CDISpecDirs": []}
#: What docker info prints, without failing, if no engine answers.
SILENT = {"ContainersRunning": 0, "CDISpecDirs": None, "ServerErrors": ["Cannot connect to the Docker daemon"]}
ON = {"ContainersRunning": 2, "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"], "ServerVersion": "28.5.2"}


def load(name: str) -> dict[str, Any]:
    """Return the variables in a file of the role, as templates."""
    values = yaml.safe_load((ROLE / name).read_text())
    return {key: _trusted(value) for key, value in values.items()}


def _trusted(value: Any) -> Any:
    if isinstance(value, list):
        return [_trusted(entry) for entry in value]
    return trust_as_template(value) if isinstance(value, str) else value


def result(code: int, output: str = "") -> dict[str, Any]:
    return {"rc": code, "stdout": output}


def host(engine: dict[str, Any] | None = None, settings: str | None = None, **changes: Any) -> Templar:
    """Return a host on which all is well with this engine, but for the changes."""
    found: dict[str, Any] = {"exists": settings is not None}
    if settings is not None:
        found["checksum"] = hashlib.sha1(settings.encode(), usedforsecurity=False).hexdigest()
    registered = {
        "driver": result(0),
        "toolkit": result(0),
        "engine": result(0, json.dumps(engine)) if engine else result(1),
        "settings_found": {"stat": found},
        "start": result(0),
        "tried": result(0),
        "daemon": result(0),
        **changes,
    }
    variables = {f"__accelerator_{name}": value for name, value in registered.items()}
    variables["__host_checked"] = {"packages": changes.get("packages", ["nvidia-container-toolkit"])}
    variables |= {**load("defaults/main.yml"), **load("vars/main.yml")}
    return templar(variables)


def value(of: Templar, expression: str) -> Any:
    return of.template(trust_as_template(f"{{{{ {expression} }}}}"))


def problems(of: Templar) -> list[str]:
    return list(value(of, "__accelerator_problems | select | list"))


@pytest.mark.parametrize(
    ("engine", "settings", "wants", "restarts"),
    [
        (OLD, None, False, False),
        (ON, None, False, False),
        (OFF, None, True, True),
        (OFF, SETTINGS, True, True),
        (OFF, "{}", True, False),
        (None, None, False, False),
        (SILENT, None, False, False),
        (SILENT, SETTINGS, False, False),
    ],
    ids=["20.10", "on", "off", "not restarted yet", "other settings", "no engine", "silent", "silent, with settings"],
)
def test_cdi_is_turned_on_where_the_engine_knows_it(
    engine: dict[str, Any] | None, settings: str | None, wants: bool, restarts: bool
) -> None:
    of = host(engine, settings)
    assert (value(of, "__accelerator_wants_cdi"), value(of, "__accelerator_restarts")) == (wants, restarts)


@pytest.mark.parametrize("engine", [OLD, OFF, ON, None, SILENT], ids=["20.10", "off", "on", "none", "silent"])
def test_nothing_is_missing_on_a_host_that_has_all(engine: dict[str, Any] | None) -> None:
    assert problems(host(engine)) == []


TOOLKIT = (
    "nvidia-container-toolkit: not in the package sources of this host, so its GPUs are not offered: add the source of"
    " NVIDIA (or install nvidia-ctk), and provision this host again."
)
OTHER_SETTINGS = (
    '/etc/docker/daemon.json has other settings, so CDI stays off: add "features": {"cdi": true} to it, and restart the'
    " engine."
)
BUSY = (
    "The engine has running containers, so it was not restarted and CDI stays off: restart docker.service when none"
    " runs, or provision this host again then."
)
UNIT = "backendai-nvidia.service fails, so GPUs may have no names: see journalctl -u backendai-nvidia.service."
LOST = "GPU-1: a container does not get it: sh: can't open /dev/nvidia0: no such file"
DAEMON = (
    "nvidia-persistenced.service is not installed, so a GPU that nobody uses loses its state and starts slowly: install"
    " the daemon that belongs to the driver."
)


@pytest.mark.parametrize(
    ("of", "sentence"),
    [
        (host(OLD, toolkit=result(1), packages=[]), TOOLKIT),
        (host(OFF, "{}"), OTHER_SETTINGS),
        (host({**OFF, "ContainersRunning": 1}), BUSY),
        (host(OLD, start=result(1)), UNIT),
        (host(OLD, daemon=result(1)), DAEMON),
        (host(ON, tried=result(0, LOST)), LOST),
    ],
    ids=["toolkit", "settings", "busy engine", "unit", "persistence daemon", "tried"],
)
def test_what_is_missing_is_said(of: Templar, sentence: str) -> None:
    assert problems(of) == [sentence]


@pytest.mark.parametrize(
    ("engine", "settings", "gives"),
    [
        (OLD, None, False),
        (ON, None, True),
        (OFF, None, True),
        (OFF, "{}", False),
        ({**OFF, "ContainersRunning": 1}, None, False),
    ],
    ids=["20.10", "on", "turned on", "other settings", "busy"],
)
def test_gpus_are_tried_by_their_names_once_the_engine_gives_them_so(
    engine: dict[str, Any], settings: str | None, gives: bool
) -> None:
    assert value(host(engine, settings), "__accelerator_gives_cdi") is gives


def test_a_gpu_that_others_can_open_fails_the_role_and_only_that() -> None:
    tasks = yaml.safe_load((ROLE / "tasks/nvidia.yml").read_text())
    (task,) = [task for task in tasks if "refused the others" in task["name"]]
    failed = [value(host(ON, tried=result(code)), task["failed_when"]) for code in (0, 1, 3)]
    assert failed == [False, False, True]


def test_the_settings_of_the_engine_turn_cdi_on() -> None:
    settings = (ROLE / "files/daemon.json").read_text()
    assert (settings, json.loads(settings)) == (SETTINGS, {"features": {"cdi": True}})


def unit_for(engine: dict[str, Any]) -> str:
    """Return the unit on a host with this engine."""
    template = trust_as_template((ROLE / "templates/backendai-nvidia.service.j2").read_text())
    return str(host(engine).template(template, overrides={"trim_blocks": True}))


@pytest.mark.parametrize("knows_cdi", [True, False])
def test_names_are_made_for_engines_that_know_them_and_before_the_engine_starts(knows_cdi: bool) -> None:
    unit = unit_for(ON if knows_cdi else OLD)
    assert "Before=docker.service\n" in unit
    assert ("--output=/run/cdi/nvidia.yaml" in unit) is knows_cdi
    assert "ExecStart=nvidia-ctk system create-dev-char-symlinks --create-all\n" in unit


@pytest.mark.parametrize(
    ("version", "old"), [("25.0.5", True), ("26.0.2", True), ("26.1.5+dfsg1", False), ("29.1.3", False)]
)
def test_names_are_of_a_version_that_the_engine_reads(version: str, old: bool) -> None:
    flag = "Environment=NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS=no-additional-gids-for-device-nodes\n"
    assert (flag in unit_for({**ON, "ServerVersion": version})) is old


@pytest.mark.parametrize(
    ("names", "refreshes", "asked"),
    [
        ("", False, "nvidia-ctk cdi generate"),
        ("", True, "nvidia-ctk cdi generate"),
        ("cdiVersion: 0.7.0", False, "nvidia-ctk cdi generate"),
        ("cdiVersion: 0.7.0", True, "systemctl --no-block restart nvidia-cdi-refresh.service"),
    ],
)
def test_names_that_the_unit_of_nvidia_keeps_are_left_to_it(
    tmp_path: Path, names: str, refreshes: bool, asked: str
) -> None:
    """The unit of NVIDIA is there or not, and so are names: at a boot they are not, and the engine does not wait."""
    (line,) = re.findall(r"^ExecStart=(/bin/sh -c '.*?')$", unit_for(ON), re.MULTILINE | re.DOTALL)
    file = tmp_path / "nvidia.yaml"
    if names:
        file.write_text(names)
    programs = {
        "systemctl": f'case "$*" in *is-enabled*) exit {0 if refreshes else 1} ;; esac\necho "systemctl $*"',
        "nvidia-ctk": 'echo "nvidia-ctk $1 $2"',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    # As systemd reads a line that goes on.
    command = line.replace("\\\n", " ").replace("/run/cdi/nvidia.yaml", str(file))
    path = f"{tmp_path}:/usr/bin:/bin"
    run = subprocess.run(["sh", "-c", command], env={"PATH": path}, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, f"{asked}\n", "")


def test_all_variables_of_the_role_are_used() -> None:
    text = "".join(path.read_text() for path in ROLE.rglob("*") if path.suffix in {".yml", ".j2"})
    assert [name for name in load("vars/main.yml") if text.count(name) < 2] == []


def test_the_role_is_in_the_playbook() -> None:
    (play,) = yaml.safe_load(Path(REPOSITORY / "playbooks/provision_agents.yml").read_text())
    assert "backendai.cluster.accelerator" in [role["role"] for role in play["roles"]]
