"""The packages of the role ``agent`` follow from the version of Debian."""

from __future__ import annotations

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

from tests.unit.builders import REPOSITORY

DEFAULTS = yaml.safe_load((REPOSITORY / "roles/agent/defaults/main.yml").read_text())
VARIABLES = yaml.safe_load((REPOSITORY / "roles/agent/vars/main.yml").read_text())


@pytest.mark.parametrize(
    ("version", "packages"),
    [("12", []), ("13", ["docker-cli"]), ("14", ["docker-cli"]), ("forky/sid", ["docker-cli"]), ("NA", ["docker-cli"])],
)
def test_the_docker_command_is_installed_where_it_is_a_package(version: str, packages: list[str]) -> None:
    template = NativeEnvironment().from_string(VARIABLES["__agent_command_packages"])
    facts = {"distribution_major_version": version}
    default = DEFAULTS["agent_packages"]
    # Another engine has a command of its own.
    for engine, wanted in ((default, packages), (["docker.io=26.1.5*"], packages), (["docker-ce"], [])):
        rendered: object = template.render(ansible_facts=facts, agent_packages=engine)
        assert rendered == wanted
