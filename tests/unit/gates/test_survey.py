"""The launch forms: what is committed is generated, AWX and Semaphore accept it, and playbooks take the answers."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.plugin_utils._request.advice import NO_FOLDER
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import SessionSpec
from ansible_collections.backendai.cluster.plugins.plugin_utils.run_request import parse_request
from tests.gates import survey
from tests.unit.builders import DEFAULTS, REPOSITORY

FOLDER = REPOSITORY / "extensions/launch"
AWX = json.loads(survey.generate()["awx.json"])["job_templates"]
SEMAPHORE = json.loads(survey.generate()["semaphore.json"])
PURPOSES = {"create_session.yml": "create", "list_sessions.yml": "list", "terminate_session.yml": "terminate"}
REQUIRED = {"session_name": "train-llm", "session_image": "lab/python:1"}
TYPES = {
    "text": str,
    "textarea": str,
    "password": str,
    "integer": int,
    "float": float,
    "multiplechoice": str,
    "multiselect": str,
}


def questions() -> list[Any]:
    listed = [question for template in AWX for question in template["related"]["survey_spec"]["spec"]]
    return [pytest.param(question, id=question["variable"]) for question in listed]


def variables() -> list[Any]:
    listed = [variable for template in SEMAPHORE for variable in template["survey_vars"]]
    return [pytest.param(variable, id=variable["name"]) for variable in listed]


def test_committed_forms_are_generated() -> None:
    committed = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    assert committed == survey.generate(), "run make survey"


@pytest.mark.parametrize("question", questions())
def test_awx_accepts_the_question(question: dict[str, Any]) -> None:
    kind = TYPES[question["type"]]
    assert all(isinstance(question[key], str) for key in ("question_name", "question_description", "variable"))
    assert isinstance(question["required"], bool)
    assert all(limit is None or isinstance(limit, int) for limit in (question["min"], question["max"]))
    assert question["type"] == "password" or isinstance(question["default"], kind)
    if question["type"] == "multiplechoice":
        assert question["default"] in question["choices"]
        assert question["required"]
    if question["type"] == "integer":
        least, most = question["min"], question["max"]
        assert least is None or least <= question["default"]
        assert most is None or question["default"] <= most
    if kind is str:
        assert len(question.get("default", "")) <= (question["max"] or 1024)


@pytest.mark.parametrize("variable", variables())
def test_semaphore_accepts_the_variable(variable: dict[str, Any]) -> None:
    assert variable["type"] in ("", "int", "enum", "secret", "text")
    assert isinstance(variable.get("default_value", ""), str)
    if variable["type"] == "enum":
        assert variable["default_value"] in [value["value"] for value in variable["values"]]


@pytest.mark.parametrize("templates", [AWX, SEMAPHORE], ids=["AWX", "Semaphore"])
def test_forms_run_the_playbooks_beside_them(templates: list[dict[str, Any]]) -> None:
    assert {template["playbook"] for template in templates} == {path.name for path in FOLDER.glob("*.yml")}
    assert {template["playbook"] for template in templates} == {*PURPOSES}


@pytest.mark.parametrize("template", AWX, ids=lambda template: template["playbook"])
@pytest.mark.parametrize("cleared", [False, True], ids=["defaults kept", "defaults cleared"])
def test_playbook_takes_what_its_form_sends(template: dict[str, Any], cleared: bool) -> None:
    listed = template["related"]["survey_spec"]["spec"]
    assert len({question["variable"] for question in listed}) == len(listed)
    answers = {question["variable"]: "" if cleared else str(question.get("default", "")) for question in listed}
    answers |= {name: value for name, value in REQUIRED.items() if name in answers}
    purpose = PURPOSES[template["playbook"]]
    sent, _run, _pools = parse_request({**DEFAULTS, **answers}, purpose)
    expected, _run, _pools = parse_request(
        {**DEFAULTS, **{name: answers[name] for name in REQUIRED if name in answers}}, purpose
    )
    assert sent == expected


def test_answers_in_text_become_values() -> None:
    answers = {
        **dict.fromkeys(survey.read_forms()[0].options, ""),
        **REQUIRED,
        "session_cluster_mode": "multi-node",
        "session_cluster_size": "4",
        "session_resources": '{"cpu": 2, "mem": "8g"}',
        "session_mounts": '[{"source": "/mnt/data", "target": "/home/work/data"}]',
        "session_env": '{"EPOCHS": "10"}',
        "session_apps": '["jupyter", {"name": "demo", "port": 8000, "command": "python -m http.server"}]',
        "session_command": "cd data\npython train.py",
        "session_wait": "true",
        "session_priority": "20",
    }
    spec, run, _pools = parse_request({**DEFAULTS, **answers}, "create")
    assert isinstance(spec, SessionSpec)
    assert (spec.cluster_size, spec.resources, spec.env) == (4, {"cpu": 2, "mem": 8 << 30}, {"EPOCHS": "10"})
    assert [(mount.source, mount.target) for mount in spec.mounts] == [("/mnt/data", "/home/work/data")]
    assert [(app.name, app.port) for app in spec.apps] == [("jupyter", 8888), ("demo", 8000)]
    assert (spec.command, spec.priority, run.wait) == ("cd data\npython train.py", 20, True)


def test_form_says_what_check_mode_says() -> None:
    descriptions = {name: survey.awx_question(name)["question_description"] for name in survey.read_forms()[0].options}
    assert descriptions["session_mounts"].endswith(NO_FOLDER)
    assert descriptions["session_resources"].endswith(
        "Resources are of one container: 4 × (cpu 2, mem 8g) = cpu 8, mem 32g in all."
    )
    assert not [text for text in descriptions.values() if survey.MARKUP.search(text)]


def test_options_are_asked_for_or_left_out() -> None:
    fields = {field.name for field in dataclasses.fields(SessionSpec)}
    asked = {name.removeprefix("session_") for name in survey.read_forms()[0].options}
    assert fields | {"wait"} == asked | (survey.LEFT_OUT & fields)
    assert {"env", "cluster_size", "max_lifetime"} & fields <= asked
