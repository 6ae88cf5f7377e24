"""The apps that an entry of ``session_apps`` names by one word."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.session import App
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.known_apps import KNOWN_APPS
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import check_spec
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import specification
from tests.unit.builders import REPOSITORY, options, refusal, spec

BASE = "/s/train-llm"
ORIGINS = "https://train-llm--mlflow.sessions.example.com,https://sessions.example.com:8443"
# What runs in the place of a program and of the kit's busybox: the first prints its name and arguments.
SHOW = '#!/bin/sh\nprintf "%s\\n" "${0##*/}" "$@"\n'


def started(app: App, folder: Path, origins: str = "") -> list[str]:
    """Return the program that an app's command runs, and its arguments."""
    (folder / "bin").mkdir()
    program = folder / "bin" / Path(app.program).name
    program.write_text(SHOW)
    program.chmod(0o755)
    command = app.command.replace("/opt/backendai/bin/busybox ", "").replace("/opt/backendai/bin", str(folder / "bin"))
    command = command.replace("/home/work", str(folder / "home"))
    environment = {"BACKENDAI_APP_BASE_URL": app.base_url("train-llm"), "BACKENDAI_APP_ORIGINS": origins}
    environment["PATH"] = f"{folder / 'bin'}:/usr/bin:/bin"
    ran = subprocess.run(["sh", "-c", command], env=environment, check=True, capture_output=True, text=True)
    assert ran.stderr == ""
    return ran.stdout.splitlines()


@pytest.mark.parametrize("word", KNOWN_APPS)
def test_a_word_starts_its_program_at_the_port_that_is_published(word: str, tmp_path: Path) -> None:
    (app,) = spec(apps=[word]).apps
    program, *arguments = started(app, tmp_path)
    assert program == Path(app.program).name
    assert [argument for argument in arguments if str(app.port) in argument]
    assert app.protocol == "http"


def test_words_have_ports_of_their_own() -> None:
    apps = spec(apps=[*KNOWN_APPS]).apps
    assert [app.name for app in apps] == [*KNOWN_APPS]
    assert {app.name: (app.path, app.start) for app in apps} == {
        "jupyter": ("keep", "/"),
        "terminal": ("strip", "/"),
        "code-server": ("none", "/"),
        "tensorboard": ("keep", "/"),
        "mlflow": ("strip", "/"),
        "dask": ("strip", "/status"),
        "ray": ("strip", "/"),
    }


@pytest.mark.parametrize(("word", "option"), [("jupyter", "--ServerApp.base_url"), ("tensorboard", "--path_prefix")])
def test_an_app_that_keeps_the_path_is_told_of_it(word: str, option: str, tmp_path: Path) -> None:
    (app,) = spec(apps=[word]).apps
    assert f"{option}={BASE}/{word}" in started(app, tmp_path)


def test_mlflow_is_told_of_the_gateways_and_of_main1(tmp_path: Path) -> None:
    (app,) = spec(apps=["mlflow"]).apps
    arguments = started(app, tmp_path, ORIGINS)
    own = "main1:5000,localhost:5000,127.0.0.1:5000"
    gateways = "train-llm--mlflow.sessions.example.com,sessions.example.com:8443"
    assert f"--allowed-hosts={own},{gateways}" in arguments
    assert f"--cors-allowed-origins=http://main1:5000,{ORIGINS}" in arguments


def test_mlflow_without_a_gateway_serves_the_session(tmp_path: Path) -> None:
    arguments = started(spec(apps=["mlflow"]).apps[0], tmp_path)
    assert "--allowed-hosts=main1:5000,localhost:5000,127.0.0.1:5000" in arguments
    assert "--cors-allowed-origins=http://main1:5000" in arguments


def test_a_mapping_changes_the_options_of_a_word(tmp_path: Path) -> None:
    word, changed = (spec(apps=[entry]).apps[0] for entry in ("jupyter", {"name": "jupyter", "port": 9999}))
    assert "--port=9999" in started(changed, tmp_path)
    assert changed == dataclasses.replace(word, port=9999, command=word.command.replace("8888", "9999"))


@pytest.mark.parametrize("command", ["", "jupyter lab"])
def test_a_command_of_ones_own_replaces_the_word(command: str) -> None:
    entry = {"name": "jupyter", "port": 8888, "command": command}
    assert spec(apps=[entry]).apps == (App("jupyter", 8888, "http", command, "strip", "/", ""),)


@pytest.mark.parametrize("given", ["jupyter, terminal", '["jupyter", "terminal"]', '["jupyter", {"name": "terminal"}]'])
def test_words_are_read_from_text(given: str) -> None:
    assert [app.name for app in spec(apps=given).apps] == ["jupyter", "terminal"]


def test_a_stored_request_with_words_is_one_that_could_be_made() -> None:
    request = spec(apps=[*KNOWN_APPS, {"name": "web", "port": 80, "program": "serve"}])
    assert check_spec(request) == request


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (
            "notebook",
            f"session_apps[0].port is required: the apps that need no port here are {', '.join(KNOWN_APPS)}.",
        ),
        (7, "session_apps[0] must be a mapping of name, port, protocol, command, path, start, program."),
        (
            {"name": "web", "port": 80, "program": "a b"},
            "session_apps[0].program: 'a b' must be the name or path of a program.",
        ),
    ],
)
def test_an_entry_that_is_no_app_is_refused_in_one_sentence(entry: object, sentence: str) -> None:
    assert refusal(apps=[entry]) == sentence


def test_the_same_word_twice_is_refused() -> None:
    problems = refusal(apps=["ray", "ray"])
    assert "session_apps: 'ray' is the name of more than one app." in problems


def test_a_word_elsewhere_is_no_mapping() -> None:
    assert (
        str(options(mounts=["data"])[0]) == "session_mounts[0] must be a mapping of source, target, read_only, strict."
    )


def test_documentation_lists_the_words() -> None:
    described = " ".join(specification()["session_apps"]["description"])
    pages = (REPOSITORY / "docs" / "access.md").read_text()
    assert [word for word in KNOWN_APPS if f"V({word})" not in described or f"`{word}`" not in pages] == []
