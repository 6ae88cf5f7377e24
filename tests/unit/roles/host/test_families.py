"""What each role calls on fresh hosts of nine distributions, until its packages are there.

The lists were written from the documentation of the distributions, not from the roles:

* Debian and Ubuntu: apt's ``docker.io`` is the engine; since Debian 13 and Ubuntu 26.04 the command is ``docker-cli``.
* docker.com, "Install Docker Engine on RHEL": ``dnf install docker-ce docker-ce-cli containerd.io``.
* Red Hat, "Using SELinux": ``semanage`` is in ``policycoreutils-python-utils``, on Fedora, too.
* Fedora: ``moby-engine`` and ``docker-cli``. RHEL and its kin have no engine.

The files in ``families`` name where each os-release is from; versions of packages are of the package index that they
name, or assumed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.kit_archive import pack
from tests.unit.builders import REPOSITORY
from tests.unit.plugins.module_utils._host.test_kit_archive import FILES as PROGRAMS

FAMILIES = Path(__file__).parent / "families"
NAMES = sorted(path.stem for path in FAMILIES.glob("*.json"))
DEBIAN = [name for name in NAMES if name.startswith(("debian", "ubuntu"))]
ROLES = {"agent": "", "gateway": "", "manager": "", "firewall": "", "accelerator": "", "access": "access_open"}

#: The roles of an agent.
ALONE = ("agent", "firewall", "accelerator", "access")
KIT = ["busybox-static", "openssh-client", "openssh-server", "shellinabox"]
KIT_OF_RPM = ["busybox", "openssh-clients", "openssh-server", "shellinabox"]
OF_AGENT = {*KIT, "ca-certificates", "iproute2", "iptables", "nftables", "python3-docker"}
OF_SELINUX = {"policycoreutils-python-utils"}
OF_RPM_AGENT = {*KIT_OF_RPM, *OF_SELINUX, "ca-certificates", "iproute", "iptables-nft", "nftables", "python3-docker"}
OF_DOCKER = {"docker-ce", "docker-ce-cli", "containerd.io"}
AGENTS = {
    "debian-11": OF_AGENT | {"docker.io"},
    "debian-12": OF_AGENT | {"docker.io"},
    "debian-13": OF_AGENT | {"docker.io", "docker-cli"},
    "ubuntu-22.04": OF_AGENT | {"docker.io"},
    "ubuntu-24.04": OF_AGENT | {"docker.io"},
    "ubuntu-26.04": OF_AGENT | {"docker.io", "docker-cli"},
    "fedora-42": OF_RPM_AGENT | {"moby-engine", "docker-cli"},
    "rhel-9": OF_RPM_AGENT | OF_DOCKER,
    "rocky-9": OF_RPM_AGENT | OF_DOCKER,
}
INDEX = ("apt", {"update_cache": True, "cache_valid_time": 3600, "lock_timeout": 600})
SETUP = ("setup", {"gather_subset": ["!all", "!min", "distribution", "python"]})

Call = tuple[str, dict[str, Any]]


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[Any]]]:
    """Return what roles call, and what lacks, by distribution and role."""
    folder = tmp_path_factory.mktemp("captured")
    hosts: dict[str, Any] = {role: {"hosts": {f"{name}_{role}": {} for name in NAMES}} for role in ROLES}
    for name in ("rhel-9", "rocky-9"):
        hosts["agent"]["hosts"][f"{name}_agent"] = {"agent_engine": "docker-ce"}
    kit = folder / "kit.tar.gz"
    kit.write_bytes(pack(PROGRAMS, [], {}))
    for role in ALONE:
        alone = {"agent_install": False, "agent_kit": str(kit), "agent_underlay_encryption": ""}
        hosts[role]["hosts"].update({f"{name}_{role}-alone": alone for name in ("debian-12", "sles-15")})
    variables = {
        "ansible_connection": "local",
        "manager_inventory": str(FAMILIES / "debian-12.json"),
        "accelerator_nvidia": "always",
        "__manager_with_keys": [],
    }
    (folder / "inventory.json").write_text(json.dumps({"all": {"children": hosts, "vars": variables}}))
    (folder / "playbook.yml").write_text(json.dumps([_play(role, tasks) for role, tasks in ROLES.items()]))
    paths = [str(folder / name) for name in ("inventory.json", "playbook.yml", "calls")]
    # Not as the account's, whose settings of Ansible may be others.
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONPATH": f"{REPOSITORY}",
        "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
    }
    command = [sys.executable, "-m", "tests.unit.captured_roles", *paths]
    run = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    found: dict[str, list[list[Any]]] = {}
    for line in (folder / "calls").read_text().splitlines():
        name, *call = json.loads(line)
        found.setdefault(name, []).append(call)
    return found


def _play(role: str, tasks_from: str) -> dict[str, Any]:
    name = "manager" if tasks_from else role
    task = {"import_role": {"name": f"backendai.cluster.{name}", **({"tasks_from": tasks_from} if tasks_from else {})}}
    block = {"block": [task], "rescue": [{"meta": "noop"}]}
    return {"hosts": role, "gather_facts": False, "tasks": [block]}


def installs(family: str, packages: set[str]) -> Call:
    if family in DEBIAN:
        return "apt", {"name": sorted(packages), "install_recommends": False, "lock_timeout": 600}
    return "dnf", {"name": sorted(packages), "install_weak_deps": False, "lock_timeout": 600}


def of_packages(found: list[list[Any]]) -> list[Call]:
    """Return the calls that read or install packages, with sorted names; names of others without arguments."""
    calls: list[Call] = []
    for module, args, _problems in found:
        known = module in ("apt", "dnf", "setup")
        listed = {"name": sorted(args["name"])} if "name" in args and known else {}
        calls.append((module, {**args, **listed} if known else {}))
    return calls


def begun(found: list[list[Any]]) -> dict[str, Any]:
    """Return the arguments of the record before an installation."""
    return next(dict(args) for module, args, _problems in found if module == "host_record" and args["state"] == "begun")


def head(family: str) -> list[Call]:
    return [SETUP, *([INDEX] if family in DEBIAN else []), ("host_requirements", {}), ("host_record", {})]


@pytest.mark.parametrize("family", AGENTS)
def test_an_agent_gets_the_packages_of_its_distribution(calls: dict[str, list[list[Any]]], family: str) -> None:
    found = calls[f"{family}_agent"]
    masked: Call = ("systemd_service", {})
    assert of_packages(found) == [*head(family), masked, installs(family, AGENTS[family]), ("host_record", {})]
    assert [args for module, args, _problems in found if module == "systemd_service"] == [
        {"name": "shellinabox.service" if family in DEBIAN else "shellinaboxd.service", "masked": True}
    ]
    record = begun(found)
    assert {*record["packages"]} == AGENTS[family]
    assert record["engine"] == ("docker-ce" if family in ("rhel-9", "rocky-9") else "distribution")


@pytest.mark.parametrize("family", ["debian-12", "debian-13", "fedora-42", "ubuntu-24.04", "ubuntu-26.04"])
def test_a_gateway_gets_haproxy_where_it_is_new_enough(calls: dict[str, list[list[Any]]], family: str) -> None:
    wanted = {"haproxy", "nftables", "python3-cryptography", *(OF_SELINUX if family not in DEBIAN else ())}
    validated: list[Call] = [("gateway_certificate", {}), ("stat", {})]
    expected = [*validated, *head(family), installs(family, wanted), ("host_record", {})]
    assert of_packages(calls[f"{family}_gateway"]) == expected


OLD_HAPROXY = {
    "debian-11": ("2.2.9", "Debian 12 and later have it, so use such a host as gateway"),
    "ubuntu-22.04": ("2.4.22", "Ubuntu 24.04 and later have it; on 22.04 use another host as gateway, or"),
    "rhel-9": ("2.4.22", "RHEL 9 and its kin can be agents, so use another host as gateway"),
    "rocky-9": ("2.4.22", "RHEL 9 and its kin can be agents, so use another host as gateway"),
}


@pytest.mark.parametrize("family", OLD_HAPROXY)
def test_an_old_haproxy_is_refused_before_anything_is_changed(calls: dict[str, list[list[Any]]], family: str) -> None:
    found = calls[f"{family}_gateway"]
    version, hint = OLD_HAPROXY[family]
    ((module, _args, (problem,)),) = [call for call in found if call[2]]
    assert (module, found[-1][0]) == ("host_requirements", "host_requirements")
    assert f" has HAProxy {version}, and a gateway needs HAProxy 2.6: {hint}" in problem


@pytest.mark.parametrize("family", ["debian-12", "debian-13", "fedora-42", "ubuntu-24.04", "ubuntu-26.04"])
def test_a_manager_gets_what_makes_its_environment(calls: dict[str, list[list[Any]]], family: str) -> None:
    wanted = {"openssh-client", "python3-venv", "sudo"} if family in DEBIAN else {"openssh-clients", "python3", "sudo"}
    found = calls[f"{family}_manager"]
    made = [call for call in of_packages(found) if call[0] in ("apt", "dnf")]
    assert made == [*([INDEX] if family in DEBIAN else []), installs(family, wanted)]


OLD_PYTHON = {
    "debian-11": ("3.9", "on Debian 11 install a newer Python"),
    "ubuntu-22.04": ("3.10", "apt-get install python3.11 python3.11-venv, and set manager_python to"),
    "rhel-9": ("3.9", "dnf install python3.12, and set manager_python to /usr/bin/python3.12"),
    "rocky-9": ("3.9", "dnf install python3.12, and set manager_python to /usr/bin/python3.12"),
}


@pytest.mark.parametrize("family", OLD_PYTHON)
def test_an_old_python_is_refused_for_a_manager(calls: dict[str, list[list[Any]]], family: str) -> None:
    found = calls[f"{family}_manager"]
    version, hint = OLD_PYTHON[family]
    assert found[-1][0] == "host_requirements"
    (problem,) = found[-1][2]
    assert f"/usr/bin/python3 is Python {version}, and a manager needs Python 3.11 for Ansible: " in problem
    assert hint in problem


@pytest.mark.parametrize("family", AGENTS)
def test_a_firewall_and_the_access_of_managers_get_their_packages(
    calls: dict[str, list[list[Any]]], family: str
) -> None:
    wanted = {"iproute2" if family in DEBIAN else "iproute", "nftables"}
    assert of_packages(calls[f"{family}_firewall"]) == [
        *head(family),
        installs(family, wanted),
        ("host_record", {}),
    ]
    made = [call for call in of_packages(calls[f"{family}_access"]) if call[0] in ("apt", "dnf")]
    assert made == [*([INDEX] if family in DEBIAN else []), installs(family, {"sudo"})]


@pytest.mark.parametrize("family", AGENTS)
def test_a_toolkit_that_no_package_source_has_is_left_out(calls: dict[str, list[list[Any]]], family: str) -> None:
    found = of_packages(calls[f"{family}_accelerator"])
    assert found[-2:] == [("host_record", {}), ("host_record", {})]
    assert [name for name, _args in found if name == "dnf"] == []


@pytest.mark.parametrize("role", ["agent", "gateway", "firewall"])
def test_a_distribution_that_nobody_knows_is_named_and_nothing_is_changed(
    calls: dict[str, list[list[Any]]], role: str
) -> None:
    found = calls[f"sles-15_{role}"]
    assert found[-1][0] == "host_requirements"
    assert found[-1][2][0].startswith("SLES 15.6 has packages that this collection does not know: ")
    assert {name for name, *_call in found} <= {"gateway_certificate", "stat", "setup", "host_requirements"}


@pytest.mark.parametrize("role", ALONE)
@pytest.mark.parametrize("name", ["debian-12", "sles-15"])
def test_nothing_is_installed_or_masked_on_an_agent_where_that_is_asked_for(
    calls: dict[str, list[list[Any]]], name: str, role: str
) -> None:
    found = calls[f"{name}_{role}-alone"]
    asked = ("setup", "apt", "dnf", "systemd_service", "host_requirements", "host_record")
    called = [module for module, _args, _problems in found if module in asked]
    assert called == ["setup", "host_requirements", "host_record", "host_record"]
    assert (begun(found)["packages"], begun(found)["units"]) == (
        [],
        {"agent": ["docker.service"], "accelerator": ["nvidia-persistenced.service"]}.get(role, []),
    )


@pytest.mark.parametrize("name", NAMES)
def test_each_recorded_distribution_says_where_it_is_from(name: str) -> None:
    recorded = json.loads((FAMILIES / f"{name}.json").read_text())
    repository, _path, commit = recorded["source"].split(", ")
    assert repository.count("/") == 1
    assert len(commit) == 40
    assert recorded["packages_source"]
