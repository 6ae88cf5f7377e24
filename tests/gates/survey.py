"""Generate the launch forms for AWX and Semaphore from the options of the role session.

`make survey` writes them to extensions/launch. New options of a session are asked for unless they are left out here.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.backendai.cluster.plugins.module_utils._model.quantity import parse_bytes
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.advice import NO_FOLDER, describe_total
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import NUMBERS, SessionSpec
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import specification

FOLDER = Path("extensions/launch")
ORGANIZATION = {"type": "organization", "name": "Default"}
MARKUP = re.compile(r"\b[A-Z]+\((?:ignore:)?([^()]*)\)")

LEFT_OUT = {
    *("roles", "architecture", "designated_agents", "designated_agents_mode", "network_driver"),
    *("uid", "gid", "infiniband", "stop_command", "agent_labels", "gpu", "topology", "no_new_privileges"),
}
"""Options of a session that its form does not ask for: inventories and playbooks set them."""

EACH = {"cpu": 2, "mem": parse_bytes("8g")}
HINTS = {
    "session_resources": f'JSON, such as {{"cpu": 2, "mem": "8g"}}. {describe_total([(4, EACH)])}',
    "session_mounts": f'JSON, such as [{{"source": "/mnt/data", "target": "/home/work/data"}}]. {NO_FOLDER}',
    "session_env": 'JSON, such as {"EPOCHS": "10"}.',
    "session_apps": 'JSON, such as ["jupyter", {"name": "demo", "port": 8000, "command": "python -m http.server"}].',
    "session_authorized_keys": "One in each line.",
}


@dataclasses.dataclass(frozen=True)
class Form:
    """A playbook and what its form asks for."""

    playbook: str
    title: str
    description: str
    options: tuple[str, ...]


def read_forms() -> list[Form]:
    """Return the forms; the options are in the order of the specification."""
    fields = {f"session_{field.name}" for field in dataclasses.fields(SessionSpec)}
    left_out = {f"session_{name}" for name in LEFT_OUT}
    asked = tuple(name for name in specification() if name in fields - left_out or name == "session_wait")
    return [
        Form(
            "create_session", "Create a session", "Starts a cluster session, or queues it until there is room.", asked
        ),
        Form(
            "list_sessions",
            "List sessions",
            "Prints all sessions, and changes nothing.",
            ("session_list_format", "session_history"),
        ),
        Form("terminate_session", "End a session", "Removes a session.", ("session_name", "session_force")),
    ]


def title_of(name: str) -> str:
    return name.removeprefix("session_").replace("_", " ").capitalize()


def description_of(name: str, option: Mapping[str, Any]) -> str:
    """Return the first paragraph of an option's description as plain text, and how to write its value."""
    text = option["description"]
    plain = MARKUP.sub(r"\1", text if isinstance(text, str) else text[0])
    return f"{plain} {HINTS[name]}" if name in HINTS else plain


def default_of(option: Mapping[str, Any]) -> str:
    """Return the default of an option as text in a form; empty for none."""
    default = option.get("default")
    if isinstance(default, bool):
        return str(default).lower()
    return json.dumps(default) if isinstance(default, (dict, list)) and default else str(default or "")


def choices_of(option: Mapping[str, Any]) -> list[str]:
    return ["true", "false"] if option["type"] == "bool" else list(option.get("choices", ()))


def kind_of(option: Mapping[str, Any]) -> str:
    """Return the type of a question as AWX names it. Variables that may be secrets are passwords."""
    if choices_of(option):
        return "multiplechoice"
    if option["type"] == "int":
        return "integer"
    if option["type"] == "dict" and option.get("no_log"):
        return "password"
    return "textarea" if option["type"] in ("dict", "list") or option.get("no_log") else "text"


def awx_question(name: str) -> dict[str, Any]:
    """Return a question of an AWX survey: limits are those of a number, or of the length of a text."""
    option = specification()[name]
    kind, default = kind_of(option), default_of(option)
    lengths = {"text": (0, 1024), "textarea": (0, 65536), "password": (0, 65536)}
    least, most = lengths.get(kind, NUMBERS.get(name.removeprefix("session_"), (None, None)))
    question: dict[str, Any] = {
        "question_name": title_of(name),
        "question_description": description_of(name, option),
        # A number or a choice has a default, so that there is always an answer.
        "required": bool(option.get("required")) or kind in ("integer", "multiplechoice"),
        "type": kind,
        "variable": name,
        "min": least,
        "max": most,
        "choices": choices_of(option),
    }
    answer = int(option["default"]) if kind == "integer" else default
    return question if kind == "password" else {**question, "default": answer}


def awx_template(form: Form) -> dict[str, Any]:
    """Return a job template in the format of `awx import`."""
    shared = {"organization": ORGANIZATION}
    return {
        "name": form.title,
        "description": form.description,
        "job_type": "run",
        "playbook": f"{form.playbook}.yml",
        "inventory": {**shared, "name": "cluster", "type": "inventory"},
        "project": {**shared, "name": "cluster", "type": "project"},
        "allow_simultaneous": True,
        "ask_job_type_on_launch": form.playbook == "create_session",
        "survey_enabled": True,
        "related": {
            "survey_spec": {
                "name": form.title,
                "description": form.description,
                "spec": [awx_question(name) for name in form.options],
            }
        },
        "natural_key": {**shared, "name": form.title, "type": "job_template"},
    }


def semaphore_variable(name: str) -> dict[str, Any]:
    """Return a survey variable of Semaphore."""
    question = awx_question(name)
    kinds = {"multiplechoice": "enum", "integer": "int", "password": "secret", "textarea": "text", "text": ""}
    variable = {
        "name": name,
        "title": question["question_name"],
        "description": question["question_description"],
        "type": kinds[question["type"]],
        "required": question["required"],
    }
    if question["choices"]:
        variable["values"] = [{"name": choice, "value": choice} for choice in question["choices"]]
    default = str(question.get("default", ""))
    return {**variable, "default_value": default} if default else variable


def semaphore_template(form: Form) -> dict[str, Any]:
    """Return the body of a request that creates a task template, without the ids of the project."""
    return {
        "name": form.title,
        "description": form.description,
        "app": "ansible",
        "type": "",
        "playbook": f"{form.playbook}.yml",
        "allow_parallel_tasks": True,
        "survey_vars": [semaphore_variable(name) for name in form.options],
    }


def generate() -> dict[str, str]:
    """Return the content of each file by its name."""
    forms = read_forms()
    content = {
        "awx.json": {"job_templates": [awx_template(form) for form in forms]},
        "semaphore.json": [semaphore_template(form) for form in forms],
    }
    return {name: f"{json.dumps(data, indent=2, ensure_ascii=False)}\n" for name, data in content.items()}


def main() -> None:
    for name, text in generate().items():
        (FOLDER / name).write_text(text)
        print(f"wrote {FOLDER / name}")


if __name__ == "__main__":
    main()
