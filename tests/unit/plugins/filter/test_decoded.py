"""Lists and mappings of options of roles, which are texts in inventories in INI format and by -e."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail, AnsibleFilterError

from ansible_collections.backendai.cluster.plugins.filter.decoded import decoded
from ansible_collections.backendai.cluster.plugins.module_utils._module import CAPACITY_OPTIONS
from ansible_collections.backendai.cluster.plugins.plugin_utils.host_request import coerce_variables
from tests.unit.builders import REPOSITORY

ROLES = ("accelerator", "agent", "firewall", "gateway", "manager", "scheduler")
RULE = {"protocol": "udp", "ports": ["53"]}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["a"], ["a"]),
        ('["10.99.0.0/16", "10.98.0.0/16"]', ["10.99.0.0/16", "10.98.0.0/16"]),
        ("['10.99.0.0/16']", ["10.99.0.0/16"]),
        (" 10.99.0.0/16, 10.98.0.0/16 ", ["10.99.0.0/16", "10.98.0.0/16"]),
        ("", []),
        ('[{"protocol": "udp", "ports": ["53"]}]', [RULE]),
        (22, 22),
    ],
)
def test_a_list_is_what_its_text_says(value: object, expected: object) -> None:
    assert decoded(value, "agent_closed_networks") == expected


@pytest.mark.parametrize("value", [{"a": 1}, '{"a": 1}', "{a: 1}"])
def test_a_mapping_is_what_its_text_says(value: object) -> None:
    assert decoded(value, "agent_sysctls", "dict") == {"a": 1}


@pytest.mark.parametrize(
    ("value", "kind", "problem"),
    [
        ("[10.0.0.0/8", "list", "'[10.0.0.0/8' begins as a list or a mapping, and is none: write it in JSON"),
        ('{"a": 1}', "list", '\'{"a": 1}\' is no list: write it in JSON, as ["first", "second"]'),
        ("a=1", "dict", '\'a=1\' is no mapping: write it in JSON, as {"name": "value"}'),
        ("[1]", "dict", '\'[1]\' is no mapping: write it in JSON, as {"name": "value"}'),
    ],
)
def test_a_text_that_is_neither_is_refused_by_the_name_of_its_option(value: str, kind: str, problem: str) -> None:
    with pytest.raises(AnsibleFilterError) as raised:
        decoded(value, "the_option", kind)
    assert str(raised.value) == f"the_option: {problem}."


def test_variables_of_an_agent_are_what_their_texts_say() -> None:
    variables = {
        "agent_labels": '["a100", "big"]',
        "agent_topology": "east,rack1",
        "agent_reserved": '{"cpu": 1, "mem": "1g"}',
        "agent_slots": '[{"name": "fpga.device", "devices": ["/dev/x"]}]',
    }
    options = coerce_variables(CAPACITY_OPTIONS, "agent_", variables, lambda value: value)
    assert (options["labels"], options["topology"]) == (["a100", "big"], ["east", "rack1"])
    assert options["reserved"] == {"cpu": 1, "mem": "1g"}
    assert options["slots"] == [{"name": "fpga.device", "devices": ["/dev/x"]}]
    with pytest.raises(AnsibleActionFail, match=r"^agent_labels: '\[a' begins as a list"):
        coerce_variables(CAPACITY_OPTIONS, "agent_", {"agent_labels": "[a"}, lambda value: value)


def options_of(role: str) -> dict[str, str]:
    """Return the options of a role that are lists or mappings, with their kinds."""
    specs = yaml.safe_load((REPOSITORY / "roles" / role / "meta/argument_specs.yml").read_text())["argument_specs"]
    every: dict[str, Any] = {}
    for entry in specs.values():
        every |= entry.get("options") or {}
    return {name: option["type"] for name, option in every.items() if option.get("type") in ("list", "dict")}


OPTIONS = {name: kind for role in ROLES for name, kind in options_of(role).items()}


def readers() -> Iterator[Path]:
    for role in ROLES:
        for folder in ("tasks", "templates", "vars"):
            yield from (REPOSITORY / "roles" / role / folder).glob("*")
    yield from (REPOSITORY / "playbooks").rglob("*.yml")


@pytest.mark.parametrize("name", OPTIONS)
def test_whatever_reads_a_list_or_mapping_of_an_option_decodes_it(name: str) -> None:
    kind = ", 'dict'" if OPTIONS[name] == "dict" else ""
    decodes = re.escape(f"backendai.cluster.decoded('{name}'{kind})")
    # The selection of agents decodes, too, and options of commands may have commas.
    rule = re.compile(
        rf" \| (default\(\[\]\) \| )?{decodes}| is (defined|string|match)\b| \| from_yaml\b| \}}\}}"
        if name.startswith("scheduler_")
        else rf"\s+\| (default\(\[\]\) \| )?{decodes}| is defined| \| default\(\[\]\) or __agent_unnamed"
    )
    for path in readers():
        for template in re.findall(r"{[{%].*?[%}]}", path.read_text(), re.DOTALL):
            for found in re.finditer(rf"(?<![\w']){name}\b(?!')", template):
                assert rule.match(template, found.end()), f"{path}: {template}"
