"""The units of the role ``scheduler``, and what users miss without gateways, which playbooks say."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.template import trust_as_template

from tests.integration.forked_ansible import run_forked
from tests.unit.builders import REPOSITORY
from tests.unit.rendering import templar

ROLE = REPOSITORY / "roles/scheduler"
UNITS = ("backendai-schedule.service", "backendai-schedule.timer", "backendai-schedule-failed.service")
HOOK = "/etc/backendai/on-failure"


def rendered(unit: str, **options: Any) -> str:
    """Return a unit with the defaults of the role, and these options."""
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    values = {**defaults, "scheduler_inventory": "/srv/hosts.yml", **options}
    spans = [
        {
            "stdout": subprocess.check_output(
                ["systemd-analyze", "timespan", "--", values[f"scheduler_{name}"]], text=True
            )
        }
        for name in ("interval", "timeout")
    ]
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    templates = {
        name: trust_as_template(variables[f"__scheduler_{name}"]) for name in ("options", "environment", "variables")
    }
    known = {**values, "__scheduler_spans": {"results": spans}}
    known |= {f"__scheduler_{name}": text for name, text in templates.items()}
    return str(templar(known).template(trust_as_template((ROLE / f"templates/{unit}.j2").read_text())))


def command_of(text: str, directive: str) -> list[str]:
    """Return the words of a command in a unit, as systemd reads them."""
    joined = re.sub(r"\\\n\s*", " ", text)
    (line,) = [line for line in joined.splitlines() if line.startswith(f"{directive}=")]
    return shlex.split(line.partition("=")[2].removeprefix(":"))


def test_systemd_accepts_all_units(tmp_path: Path) -> None:
    for unit in UNITS:
        (tmp_path / unit).write_text(
            f"{rendered(unit, scheduler_command='/bin/true', scheduler_page_path='/srv/a b.html')}\n"
        )
    command = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / unit) for unit in UNITS)]
    verified = subprocess.run(command, check=False, capture_output=True, text=True)
    # On hosts without the operator's program, its unit does nothing.
    told = [line for line in verified.stderr.splitlines() if "backendai" in line and HOOK not in line]
    assert told == []


@pytest.mark.parametrize(("interval", "seconds"), [("1min", 60.0), ("100ms", 0.1), ("1h 30min", 5400.0)])
def test_a_run_of_the_timer_knows_its_interval(interval: str, seconds: float) -> None:
    command = command_of(rendered(UNITS[0], scheduler_interval=interval), "ExecStart")
    assert command[:4] == ["ansible-playbook", "-i", "/srv/hosts.yml", "backendai.cluster.schedule_sessions"]
    assert [json.loads(word) for word in command[5:]] == [{"__session_timer_interval": seconds}]


def test_a_run_of_the_timer_writes_the_page_that_was_named() -> None:
    command = command_of(
        rendered(UNITS[0], scheduler_page_path="/srv/page.html", scheduler_options=["-v"]), "ExecStart"
    )
    assert json.loads(command[5])["session_page_path"] == "/srv/page.html"
    assert command[6:] == ["-v"]


def test_a_failed_run_starts_the_program_of_the_operator_for_ten_seconds_and_so_many_lines() -> None:
    assert f"OnFailure={UNITS[2]}" in rendered(UNITS[0]).splitlines()
    lines = rendered(UNITS[2]).splitlines()
    assert {f"ExecStart={HOOK}", "TimeoutStartSec=10s", "TimeoutStopSec=1s", "LogRateLimitBurst=20"} <= {*lines}
    assert {"LogRateLimitIntervalSec=1min", f"ConditionPathExists={HOOK}"} <= {*lines}


def test_each_unit_is_written_and_removed() -> None:
    assert {f"{unit}.j2" for unit in UNITS} == {path.name for path in (ROLE / "templates").iterdir()}
    for state in ("present", "absent"):
        tasks = yaml.safe_load((ROLE / f"tasks/{state}.yml").read_text())
        assert {*UNITS} in [{*task.get("loop", [])} for task in tasks]


MODES = {
    "root's": (0o755, 0o700, True),
    "others may write it": (0o755, 0o702, False),
    "its group may write it": (0o755, 0o770, False),
    "others may write its folder": (0o777, 0o700, False),
}


def admitted(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the condition of the unit, about a program in another folder."""
    program, *words = command_of(rendered(UNITS[2]), "ExecCondition")
    words = [word.replace(os.path.dirname(HOOK), str(folder)) for word in words]
    return subprocess.run([program, *words], check=False, capture_output=True, text=True)


@pytest.mark.parametrize(("of_folder", "of_program", "runs"), MODES.values(), ids=MODES)
def test_the_program_runs_only_if_root_alone_may_have_written_it(
    tmp_path: Path, of_folder: int, of_program: int, runs: bool
) -> None:
    assert os.geteuid() == 0, "these tests run as root, as the unit does"
    folder = tmp_path / "backendai"
    folder.mkdir()
    hook = folder / "on-failure"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(of_program)
    folder.chmod(of_folder)
    told = admitted(folder)
    assert (told.returncode, "does not run: it or its folder is a link" in told.stdout) == (0 if runs else 1, not runs)


@pytest.mark.parametrize("other", ["owner", "link", "folder is a link"])
def test_a_program_of_somebody_else_does_not_run(tmp_path: Path, other: str) -> None:
    real = tmp_path / "real"
    real.mkdir()
    hook = real / "on-failure"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    folder = real
    if other == "owner":
        os.chown(hook, 1, 0)
    elif other == "link":
        hook.rename(real / "program")
        hook.symlink_to(real / "program")
    else:
        folder = tmp_path / "link"
        folder.symlink_to(real)
    assert admitted(folder).returncode == 1


# ---- what users of managers miss

LAST = "Warn of what"


def warned(
    tmp_path: Path, inventory: dict[str, Any], policy: str = "images: [lab/*]", play: str = "managers"
) -> list[str]:
    """Return the warnings of the playbook's last words about managers, whose inventory, or that of the run, is this."""
    (tmp_path / "policy.yml").write_text(policy)
    plays = yaml.safe_load((REPOSITORY / f"playbooks/provision_{play}.yml").read_text())
    (tasks,) = [every["tasks"] for every in plays if every.get("tasks", [{}])[-1].get("name", "").startswith(LAST)]
    path = str(REPOSITORY / "playbooks" / tasks[-1]["ansible.builtin.import_tasks"])
    of_managers: dict[str, Any] = {
        "manager_policy": str(tmp_path / "policy.yml"),
        "manager_inventory": str(tmp_path / "manager-inventory"),
        "manager_state": "present",
    }
    if play == "managers":
        of_managers["__manager_inventory_result"] = {"stdout": json.dumps(inventory)}
        (tmp_path / "manager-inventory").write_text(f"#!/bin/sh\necho '{json.dumps(inventory)}'\n")
        (tmp_path / "manager-inventory").chmod(0o755)
    groups: dict[str, Any] = {"managers": {"hosts": {"manager1": of_managers}}}
    if play == "gateways":
        groups["gateways"] = {"hosts": inventory}
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": {"children": groups}}))
    made = {
        "hosts": "managers",
        "gather_facts": False,
        "tasks": [*tasks[:-1], {**tasks[-1], "ansible.builtin.import_tasks": path}],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([made]))
    command = ["ansible-playbook", "-i", str(tmp_path / "hosts.yml"), str(tmp_path / "play.yml")]
    code, output = run_forked(command, tmp_path / "output", 120)
    assert code == 0, output
    return re.findall(r"WARNING: users of manager1 (.*?):", output)


NOBODY, NO_LINKS = "cannot log in to their sessions, or open apps", "get no links to apps"


def listed(**domains: str) -> dict[str, Any]:
    """Return what ``ansible-inventory --list`` prints of an inventory with gateways."""
    variables = {name: {"gateway_domain": domain} for name, domain in domains.items() if domain}
    group = {"gateways": {"hosts": [*domains]}} if domains else {}
    return {"_meta": {"hostvars": variables}, "all": {"children": ["ungrouped", *group]}, **group}


def test_provisioning_warns_of_a_manager_whose_inventory_has_no_gateway(tmp_path: Path) -> None:
    assert warned(tmp_path, listed()) == [NOBODY]


@pytest.mark.parametrize(
    ("domains", "policy", "warnings"),
    [
        ({"gateway1": ""}, "images: [lab/*]", [NO_LINKS]),
        ({"gateway1": ""}, "links_by_path: false", [NO_LINKS]),
        ({"gateway1": ""}, "links_by_path: true", []),
        ({"gateway1": "apps.example.org"}, "images: [lab/*]", []),
    ],
)
def test_provisioning_warns_of_gateways_without_links_for_users(
    tmp_path: Path, domains: dict[str, str], policy: str, warnings: list[str]
) -> None:
    assert warned(tmp_path, listed(**domains), policy) == warnings
    of_run = {name: {"gateway_domain": domain} if domain else {} for name, domain in domains.items()}
    assert warned(tmp_path, of_run, policy, "gateways") == warnings


@pytest.mark.parametrize(("domain", "warnings"), [("", [NO_LINKS]), ("apps.example.org", [])])
def test_gateways_in_groups_of_groups_count(tmp_path: Path, domain: str, warnings: list[str]) -> None:
    inventory = listed(gateway1="apps.example.org", gateway2=domain)
    zone, groups = inventory.pop("gateways"), {"gateways": {"children": ["region_a"]}}
    assert warned(tmp_path, {**inventory, **groups, "region_a": {"children": ["zone_a"]}, "zone_a": zone}) == warnings
