"""Write a page of documentation for each playbook, from its own file and the options of roles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from antsibull_docs_parser.md import to_md
from antsibull_docs_parser.parser import Context, parse

COLLECTION = "backendai.cluster"
INCLUDED = re.compile(r"(?:import_playbook|import_tasks|include_tasks): ([\w/]+\.yml)")
HOST_GROUP = re.compile(r"\b([a-z]+_group) \| default\('(\w+)'\)")
TEMPLATED = re.compile(r"(?<![\w.'\[])[a-z]+_\w+(?= \|)")
#: The variables of the groups that tasks ask by themselves, by the modules of these tasks.
ASKING = {
    "session|queue|session_logs|session_verify|session_token|isolation_verify": {
        "agent_group": "agents",
        "gateway_group": "gateways",
    },
    "session_info|agent_info|agent_state|policy_folders": {"agent_group": "agents"},
    "isolation_verify|policy_folders": {"manager_group": "managers"},
}
VARIABLE = re.compile(r"(?:session|accelerator|agent|gateway|firewall|manager|scheduler)_\w*[a-z0-9]")
NAME = re.compile(r"\b[a-z]+_\w+")


@dataclass(frozen=True)
class RoleOption:
    role: str
    specification: Mapping[str, Any]

    @property
    def description(self) -> str:
        text = self.specification["description"]
        return text if isinstance(text, str) else " ".join(text)

    @property
    def default(self) -> object:
        return self.specification.get("default")


@dataclass(frozen=True)
class Playbook:
    name: str
    description: str
    steps: tuple[str, ...]
    roles: tuple[str, ...]
    options: tuple[str, ...]
    host_groups: Mapping[str, str]

    @property
    def summary(self) -> str:
        """The first sentence of the description."""
        return " ".join(self.description.split()).split(". ", maxsplit=1)[0].removesuffix(".")


def read_role_options(root: Path) -> dict[str, RoleOption]:
    """Return each option of each role, by its name."""
    options = {}
    for path in sorted(root.glob("roles/*/meta/argument_specs.yml")):
        for entry in yaml.safe_load(path.read_text())["argument_specs"].values():
            for name, option in entry.get("options", {}).items():
                options[name] = RoleOption(path.parts[-3], option)
    return options


def read_playbook(path: Path, options: Mapping[str, RoleOption]) -> Playbook:
    """Return what a playbook's file documents.

    Raises :class:`ValueError` where it has no comment at its top, or one that names an unknown variable.
    """
    header = re.match(r"---\n((?:# .*\n)+)", path.read_text())
    if header is None:
        raise ValueError(f"{path}: needs a comment below its first line that describes the playbook")
    text = "\n".join(file.read_text() for file in sorted(_files(path.resolve(), set())))
    names = [*NAME.findall(header[1]), *TEMPLATED.findall(text)]
    for name in VARIABLE.findall(header[1]):
        if name not in options and not path.with_stem(name).exists():
            raise ValueError(f"{path}: no role has the variable {name}")
    plays = yaml.safe_load(path.read_text())
    return Playbook(
        name=path.stem,
        description=re.sub(r"^# ", "", header[1], flags=re.MULTILINE),
        steps=tuple(play["name"] for play in plays),
        roles=tuple(role["role"].removeprefix(f"{COLLECTION}.") for play in plays for role in play.get("roles", ())),
        options=tuple(name for name in dict.fromkeys(names) if name in options),
        host_groups=dict(HOST_GROUP.findall(text)) | _asked_groups(text),
    )


def _asked_groups(text: str) -> dict[str, str]:
    """Return the groups that tasks ask by themselves, by their variables."""
    groups: dict[str, str] = {}
    for modules, named in ASKING.items():
        if re.search(rf"{re.escape(COLLECTION)}\.(?:{modules}):", text):
            groups |= named
    return groups


def page(playbook: Playbook, options: Mapping[str, RoleOption]) -> str:
    """Return the page of a playbook, in Markdown."""
    return "\n".join(_lines(playbook, options))


def _lines(playbook: Playbook, options: Mapping[str, RoleOption]) -> Iterator[str]:
    yield f"# {playbook.name}\n\n{_marked(playbook.description, options)}"
    yield f"```console\n$ ansible-playbook -i inventory/agents.yml {COLLECTION}.{playbook.name}\n```\n"
    yield "## Plays\n"
    yield from (f"1. {step}" for step in playbook.steps)
    yield "\n## Variables\n"
    roles = playbook.roles or sorted({options[name].role for name in playbook.options})
    links = ", ".join(f"{{ref}}`{role} <ansible_collections.{COLLECTION}.{role}_role>`" for role in roles)
    yield f"All variables are described with their roles: {links}.\n"
    yield "| variable | default | |\n|---|---|---|"
    for name, group in playbook.host_groups.items():
        yield f"| `{name}` | `{group}` | The inventory group of the {group}. |"
    for name in playbook.options:
        option = options[name]
        default = "" if option.default in (None, "") else f"`{json.dumps(option.default)}`"
        yield f"| {_reference(name, option)} | {default} | {_as_markdown(option.description)} |"
    yield ""


def _marked(text: str, options: Mapping[str, RoleOption]) -> str:
    """Return a text in which each option leads to its description."""
    return NAME.sub(lambda name: _reference(name[0], options[name[0]]) if name[0] in options else name[0], text)


def _reference(name: str, option: RoleOption) -> str:
    return f"{{ansopt}}`{COLLECTION}.{option.role}#role:main:{name}`"


def _as_markdown(text: str) -> str:
    """Return a description, which has Ansible's markup, in the Markdown of one cell of a table."""
    return to_md(parse(text, Context())).replace("\n", " ")


def _files(path: Path, seen: set[Path]) -> set[Path]:
    """Return ``seen`` with a playbook's file and all files that it includes; attempt.yml includes itself."""
    if path not in seen:
        seen.add(path)
        for name in INCLUDED.findall(path.read_text()):
            _files((path.parent / name).resolve(), seen)
    return seen
