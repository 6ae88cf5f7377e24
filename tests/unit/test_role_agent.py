"""What the role ``agent`` writes for the next boot."""

from __future__ import annotations

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.builders import REPOSITORY

ROLE = REPOSITORY / "roles/agent"


def written_at_boot() -> dict[str, str]:
    """Return the texts of both files, by the names of their variables."""
    tasks = yaml.safe_load((ROLE / "tasks/kernel.yml").read_text())
    texts: dict[str, str] = next(task["vars"] for task in tasks if task["name"].startswith("Write the kernel settings"))
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    known = {
        "__agent_kernel_features": variables["__agent_kernel_features"],
        "agent_sysctls": {"net.ipv4.ip_forward": 1, "net.core.somaxconn": 4096},
    }
    templar = Templar(loader=DataLoader(), variables=known)
    return {name: str(templar.template(trust_as_template(text))) for name, text in texts.items()}


def test_each_kernel_module_has_a_line_of_its_own() -> None:
    lines = written_at_boot()["__agent_modules_at_boot"].splitlines()
    assert lines == ["# Written by the role backendai.cluster.agent.", "overlay", "vxlan"]


def test_each_kernel_setting_has_a_line_of_its_own() -> None:
    lines = written_at_boot()["__agent_settings_at_boot"].splitlines()
    assert lines[1:] == ["net.ipv4.ip_forward = 1", "net.core.somaxconn = 4096"]
