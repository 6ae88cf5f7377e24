"""What the role ``accelerator`` finds on a host, and what it says is missing."""

from __future__ import annotations

import hashlib
import json
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
ON = {"ContainersRunning": 2, "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}


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
    ],
    ids=["toolkit", "settings", "busy engine", "unit", "persistence daemon"],
)
def test_what_is_missing_is_said(of: Templar, sentence: str) -> None:
    assert problems(of) == [sentence]


def test_the_settings_of_the_engine_turn_cdi_on() -> None:
    settings = (ROLE / "files/daemon.json").read_text()
    assert (settings, json.loads(settings)) == (SETTINGS, {"features": {"cdi": True}})


@pytest.mark.parametrize("knows_cdi", [True, False])
def test_names_are_made_for_engines_that_know_them_and_before_the_engine_starts(knows_cdi: bool) -> None:
    template = (ROLE / "templates/backendai-nvidia.service.j2").read_text()
    of = host(ON if knows_cdi else OLD)
    unit = str(of.template(trust_as_template(template), overrides={"trim_blocks": True}))
    assert "Before=docker.service\n" in unit
    assert ("--output=/run/cdi/nvidia.yaml" in unit) is knows_cdi
    assert "ExecStart=nvidia-ctk system create-dev-char-symlinks --create-all\n" in unit


def test_all_variables_of_the_role_are_used() -> None:
    text = "".join(path.read_text() for path in ROLE.rglob("*") if path.suffix in {".yml", ".j2"})
    assert [name for name in load("vars/main.yml") if text.count(name) < 2] == []


def test_the_role_is_in_the_playbook() -> None:
    (play,) = yaml.safe_load(Path(REPOSITORY / "playbooks/provision_agents.yml").read_text())
    assert "backendai.cluster.accelerator" in [role["role"] for role in play["roles"]]
