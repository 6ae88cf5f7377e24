"""What the role ``agent`` writes for the next boot."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from ansible.template import trust_as_template

from ansible_collections.backendai.cluster.plugins.plugin_utils.removed_options import describe_removed_options
from tests.unit.builders import ANSIBLE_PLAYBOOK, REPOSITORY
from tests.unit.rendering import templar

ROLE = REPOSITORY / "roles/agent"
SETTINGS = {"net.ipv4.ip_forward": 1, "net.core.somaxconn": 4096}


def written_at_boot(sysctls: object) -> dict[str, str]:
    """Return the texts of both files, by the names of their variables."""
    tasks = yaml.safe_load((ROLE / "tasks/kernel.yml").read_text())
    texts: dict[str, str] = next(task["vars"] for task in tasks if task["name"].startswith("Write the kernel settings"))
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    known = {
        "__agent_modules": variables["__agent_modules"],
        "__agent_sysctls": trust_as_template(variables["__agent_sysctls"]),
        "agent_sysctls": sysctls,
    }
    return {name: str(templar(known).template(trust_as_template(text))) for name, text in texts.items()}


@pytest.mark.parametrize(("option", "code"), [("agent_registry_mirrors", 2), ("agent_reserve", 2), ("agent_labels", 0)])
def test_a_removed_option_is_refused_before_anything_is_done(tmp_path: Path, option: str, code: int) -> None:
    first = yaml.safe_load((ROLE / "tasks/main.yml").read_text())[0]
    play = {"hosts": "localhost", "gather_facts": False, "vars": {option: []}, "tasks": [first]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    command = [*ANSIBLE_PLAYBOOK, "-i", "localhost,", "-c", "local", str(tmp_path / "play.yml")]
    run = subprocess.run(command, check=False, capture_output=True, text=True, cwd=REPOSITORY)
    assert run.returncode == code, run.stdout + run.stderr
    sentences = describe_removed_options([option])
    assert all(sentence in run.stdout for sentence in sentences)
    assert bool(sentences) is bool(code)


def test_each_kernel_module_has_a_line_of_its_own() -> None:
    lines = written_at_boot(SETTINGS)["__agent_modules_at_boot"].splitlines()
    assert lines == ["# Written by the role backendai.cluster.agent.", "overlay", "vxlan"]


@pytest.mark.parametrize("given", [SETTINGS, json.dumps(SETTINGS)], ids=["mapping", "text of an INI inventory"])
def test_each_kernel_setting_has_a_line_of_its_own(given: object) -> None:
    lines = written_at_boot(given)["__agent_settings_at_boot"].splitlines()
    assert lines[1:] == ["net.ipv4.ip_forward = 1", "net.core.somaxconn = 4096"]


def test_what_is_counted_for_a_user_id_on_a_host_is_enough_for_many_sessions_by_default() -> None:
    """128 inotify instances and 200 keys are what the kernel allows; several sessions of a host have one user id."""
    settings = yaml.safe_load((ROLE / "defaults/main.yml").read_text())["agent_sysctls"]
    assert settings["net.ipv4.ip_forward"] == 1
    for name in ("fs.inotify.max_user_instances", "fs.inotify.max_user_watches", "kernel.keys.maxkeys"):
        assert settings[name] >= 1 << 16
    assert settings["fs.pipe-user-pages-soft"] > 16384
    assert settings["kernel.keys.maxbytes"] > 20000 * 100


def rendered(template: str, **variables: object) -> str:
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    known = {
        "__agent_program": "/program",
        "__agent_python": "/python",
        "__agent_homes": {"path": "/srv/homes"},
        **defaults,
        **variables,
    }
    text = (ROLE / "templates" / template).read_text()
    return str(templar(known).template(trust_as_template(text)))


def test_homes_are_mounted_without_setuid_programs_and_devices_before_the_engine_starts() -> None:
    lines = rendered("backendai-homes-mount.service.j2").splitlines()
    assert "ExecStart=mount --bind -o nosuid,nodev /srv/homes /srv/homes" in lines
    assert {"Before=docker.service backendai-restore.service", "WantedBy=docker.service"} <= {*lines}
    assert {"RequiresMountsFor=/srv/homes", "RemainAfterExit=yes", "ExecStop=umount /srv/homes"} <= {*lines}


def test_homes_of_ended_sessions_are_removed_at_the_lowest_priority_and_below_the_reserve_at_the_usual_one() -> None:
    lines = rendered("backendai-homes.service.j2", agent_disk_reserve="20g").splitlines()
    assert {"Nice=19", "IOSchedulingClass=idle", "Type=oneshot"} <= {*lines}
    (command,) = (line for line in lines if line.startswith("ExecStart="))
    assert command.endswith(" --remove-homes 20g")


def test_each_unit_of_the_role_goes_with_the_agent() -> None:
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    units = variables["__agent_units"]
    assert {*units, *variables["__agent_unit_templates"]} == {path.stem for path in (ROLE / "templates").glob("*.j2")}
    # Nothing mounts or removes again what is stopped.
    assert units.index("backendai-homes.service") < units.index("backendai-homes-mount.service")


def test_each_file_of_the_role_in_etc_goes_with_the_agent() -> None:
    paths = {
        path
        for tasks in (ROLE / "tasks").glob("*.yml")
        if tasks.stem != "absent"
        for path in re.findall(r"(?:^      |\{')(/etc/[^\s':]+)'?: ", tasks.read_text(), re.MULTILINE)
        if not path.startswith("/etc/systemd/system/")
    }
    assert len(paths) == 3, "the names of files are no longer found"
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    assert {*paths, "{{ __agent_sysctl_file }}"} <= {*variables["__agent_paths"]}


FOUND = {"ansible_facts": {"discovered_interpreter_python": "/usr/bin/python3.13"}}


@pytest.mark.parametrize(
    ("variables", "python"),
    [
        (
            {"agent_python": "/opt/venv/bin/python", "ansible_python_interpreter": "/opt/python", **FOUND},
            "/opt/venv/bin/python",
        ),
        ({"ansible_python_interpreter": "/opt/python", **FOUND}, "/opt/python"),
        ({"ansible_python_interpreter": "auto", **FOUND}, "/usr/bin/python3.13"),
        (FOUND, "/usr/bin/python3.13"),
        ({"ansible_facts": {}}, "/usr/bin/python3"),
        ({}, "/usr/bin/python3"),
    ],
    ids=["of the agent", "named", "found by a mode", "found", "not found", "no facts"],
)
@pytest.mark.parametrize("role", ["agent", "firewall"])
def test_units_run_with_the_python_that_was_checked(role: str, variables: dict[str, object], python: str) -> None:
    text = yaml.safe_load((REPOSITORY / f"roles/{role}/vars/main.yml").read_text())[f"__{role}_python"]
    known = {"agent_python": "", "__firewall_agent": True, **variables}
    assert str(templar(known).template(trust_as_template(text))) == python
