"""The rules of managers are valid for sudo and for sudo-rs, whichever of them a host has."""

from __future__ import annotations

import re

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.builders import REPOSITORY

ROLE = REPOSITORY / "roles/manager"
TEMPLATES = ["access_sudoers.j2", "sudoers.j2"]
# All settings that sudo-rs 0.2.5 knows and these files use; it refuses a file with another, such as log_input or umask.
KNOWN = {"!use_pty", "env_reset"}


def rendered(template: str, version: str) -> str:
    """Return a file as it is written where ``sudo --version`` prints a text."""
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text()) | yaml.safe_load(
        (ROLE / "defaults/main.yml").read_text()
    )
    known = {name: trust_as_template(value) if isinstance(value, str) else value for name, value in variables.items()}
    known["__manager_sudo"] = {"stdout": version}
    templar = Templar(loader=DataLoader(), variables=known)
    return str(templar.template(trust_as_template((ROLE / "templates" / template).read_text())))


@pytest.mark.parametrize("version", ["Sudo version 1.9.16p2", "sudo-rs 0.2.5", ""])
@pytest.mark.parametrize("template", TEMPLATES)
def test_the_rules_have_no_setting_that_sudo_rs_refuses(template: str, version: str) -> None:
    text = rendered(template, version)
    (settings,) = re.findall(r"^Defaults\S+ (.*)$", text, re.MULTILINE)
    assert {*settings.split(", ")} <= KNOWN


@pytest.mark.parametrize("template", TEMPLATES)
def test_sudo_writes_no_log_of_input_and_output_and_sudo_rs_has_no_words_for_it(template: str) -> None:
    rules = [line for line in rendered(template, "Sudo version 1.9.13p3").splitlines() if "NOPASSWD" in line]
    assert rules
    assert all("NOLOG_INPUT: NOLOG_OUTPUT: " in rule for rule in rules)
    # It prints a warning of each, whenever it runs.
    assert "NOLOG" not in rendered(template, "sudo-rs 0.2.5")
