"""What a host lacks is said at once, a sentence each with what to do, and which packages come."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.packages import Package
from ansible_collections.backendai.cluster.plugins.module_utils._requirements.engine_look import SNAP, Engine, Program
from ansible_collections.backendai.cluster.plugins.module_utils._requirements.requirements import (
    Family,
    Host,
    Wanted,
    judge,
)

HINTS = {
    "haproxy": "use another host",
    "manager_python": "install python3.11",
    "modules": "install linux-modules-extra",
}
PROGRAMS = {"nft": "nftables", "ip": "iproute2", "haproxy": "haproxy", "sdk": "python3-docker"}
FAMILY = Family("Debian 13", "apt", "apt-get install", "apt-get remove", PROGRAMS, "/usr/bin/python3", HINTS)
ENGINES = {"distribution": ["docker.io", "docker-cli"], "docker-ce": ["docker-ce", "docker-ce-cli"]}
NEEDED = ["iproute2", "nftables", "python3-docker"]
AGENT = Wanted("agent", FAMILY, NEEDED, engines=ENGINES)
SOURCES = {
    "docker.io": Package(candidate="26.1.5+dfsg1-9"),
    "docker-cli": Package(candidate="26.1.5+dfsg1-9"),
    "haproxy": Package(candidate="3.0.11-1"),
    "iproute2": Package(candidate="6.15.0-1"),
    "nftables": Package(candidate="1.1.3-1"),
    "python3-docker": Package(candidate="7.1.0-2"),
}
FRESH = Host(packages=SOURCES, has_sdk=False)
RUNNING = Engine("27.3.1", "1.24", ("name=seccomp,profile=builtin", "name=cgroupns"))
DOCKER_CE = Program("/usr/bin/dockerd", "docker-ce")


def agent(source: str = "", *, family: Family = FAMILY, **host: Any) -> list[str]:
    """Return what a fresh host with these changes lacks to be an agent."""
    return list(judge(AGENT._replace(engine=source, family=family), FRESH._replace(**host)).problems)


def test_a_fresh_host_gets_the_engine_of_its_distribution_and_the_command_where_there_is_one() -> None:
    assert judge(AGENT, FRESH) == ("distribution", [*NEEDED, "docker.io", "docker-cli"], [])
    without = {name: package for name, package in SOURCES.items() if name != "docker-cli"}
    assert judge(AGENT, FRESH._replace(packages=without)) == ("distribution", [*NEEDED, "docker.io"], [])


def test_no_package_of_an_engine_that_answers_is_touched() -> None:
    there = FRESH._replace(engine=RUNNING, engine_programs=(DOCKER_CE,))
    assert judge(AGENT, there) == ("present", NEEDED, [])
    assert judge(AGENT._replace(engine="present"), there) == ("present", NEEDED, [])


@pytest.mark.parametrize(("kept", "packages"), [("distribution", ["docker.io", "docker-cli"]), ("present", [])])
def test_what_the_first_provisioning_chose_is_kept(kept: str, packages: list[str]) -> None:
    own = (Program("/usr/sbin/dockerd", "docker.io"),)
    verdict = judge(AGENT, FRESH._replace(engine=RUNNING, engine_programs=own, kept_engine=kept))
    assert verdict == (kept, [*NEEDED, *packages], [])


def test_an_engine_in_the_operators_list_is_the_one_that_comes_once() -> None:
    wanted = AGENT._replace(packages=[*NEEDED, "docker.io=26.1*"])
    assert judge(wanted, FRESH) == ("distribution", [*NEEDED, "docker.io=26.1*", "docker-cli"], [])


@pytest.mark.parametrize("answers", [RUNNING, None])
def test_an_engine_is_never_replaced_by_another(answers: Engine | None) -> None:
    (problem,) = agent("distribution", engine=answers, engine_programs=(DOCKER_CE,))
    assert problem == (
        "This host has a Docker engine, /usr/bin/dockerd of the package docker-ce, and docker.io would take its place"
        " and stop its containers: set agent_engine to present, with no engine in agent_packages, and systemctl enable"
        " --now docker.service, or remove that engine first (apt-get remove docker-ce)."
    )
    (problem,) = agent(
        "docker-ce", engine=answers, engine_programs=(Program("/opt/dockerd"),), packages={**SOURCES, **CE}
    )
    assert problem.startswith("This host has a Docker engine, /opt/dockerd of no package, and docker-ce would take")


def test_an_engine_in_the_operators_list_replaces_no_other_one_either() -> None:
    there = FRESH._replace(
        engine=RUNNING, engine_programs=(DOCKER_CE,), packages={**SOURCES, "moby-engine": SOURCES["docker.io"]}
    )
    for name in ("docker.io", "moby-engine"):
        wanted = AGENT._replace(packages=[*NEEDED, name], engine="present")
        (problem,) = judge(wanted, there).problems
        assert f"of the package docker-ce, and {name} would take its place" in problem


def test_an_engine_that_is_installed_beside_one_of_no_package_stays() -> None:
    both = {**SOURCES, "docker.io": Package(installed="26.1.5", candidate="26.1.5")}
    assert agent("distribution", packages=both, engine=RUNNING, engine_programs=(Program("/opt/dockerd"),)) == []


CE = {"docker-ce": Package(candidate="5:29.1.3-1~debian.13~trixie")}


def test_docker_ce_comes_from_sources_that_the_operator_has_added() -> None:
    assert judge(AGENT._replace(engine="docker-ce"), FRESH._replace(packages={**SOURCES, **CE})) == (
        "docker-ce",
        [*NEEDED, "docker-ce"],
        [],
    )
    family = FAMILY._replace(hints={"docker-ce": "add docker.com's source"})
    assert agent("docker-ce", family=family) == [
        "The package sources of this host do not have docker-ce: add docker.com's source."
    ]


def test_an_engine_that_is_to_be_there_and_does_not_answer_is_named_with_its_command() -> None:
    (problem,) = agent("present")
    assert problem == (
        "agent_engine is present, and no Docker engine answers at unix:///var/run/docker.sock: systemctl enable --now"
        " docker.service, or set agent_engine to distribution."
    )


SNAPPED = Program(str(SNAP))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"engine_programs": (SNAPPED,), "engine": RUNNING}, "dockerd of a snap, which sees only some of the host's"),
        (
            {"engine_programs": (DOCKER_CE, SNAPPED), "engine": RUNNING},
            "This host has two Docker engines, /usr/bin/docke",
        ),
        (
            {"engine": Engine("5.4.2", "1.24", (), is_podman=True)},
            "is Podman's, and sessions need a Docker engine: sys",
        ),
        ({"engine": RUNNING._replace(options=("name=rootless",))}, "is rootless, and cannot make the networks of sess"),
        ({"engine": RUNNING._replace(version="19.03.15")}, "The Docker engine is 19.03.15, and an agent needs 20.10: "),
        ({"engine": Engine("99.0.0", "2.0")}, "The Docker engine 99.0.0 is too new: the oldest API that it answers is"),
    ],
    ids=["snap", "two", "podman", "rootless", "too old", "too new"],
)
def test_an_engine_that_cannot_run_sessions_is_refused_in_one_sentence(changes: dict[str, Any], said: str) -> None:
    (problem,) = agent(**changes)
    assert said in problem


def test_an_engine_that_gives_containers_other_users_is_as_good() -> None:
    """Containers of sessions ask for the users of the host."""
    assert agent(engine=RUNNING._replace(options=("name=userns",))) == []


def test_an_engine_that_the_distribution_has_too_old_is_refused_before_it_is_installed() -> None:
    old = {**SOURCES, "docker.io": Package(candidate="19.03.8-0ubuntu1")}
    assert agent(packages=old) == ["The Docker engine is 19.03.8, and an agent needs 20.10: upgrade it."]


def test_a_distribution_without_an_engine_says_where_one_is() -> None:
    wanted = AGENT._replace(
        engines={**ENGINES, "distribution": []}, family=FAMILY._replace(hints={"engine": "add one"})
    )
    assert judge(wanted, FRESH).problems == ["Debian 13 has no package of a Docker engine: add one."]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"has_systemd": False}, "systemd does not run on this host (Debian 13)"),
        ({"missing_modules": ("vxlan",)}, "The kernel lacks vxlan, so sessions cannot span several agents: load it"),
        (
            {"missing_modules": ("br_netfilter",)},
            "br_netfilter; in a container: on its host), or boot a kernel that has",
        ),
        (
            {"nft_error": "Protocol not supported"},
            "The kernel has no nftables (Protocol not supported), and an agent ne",
        ),
        ({"programs": {"nft": "0.9.3"}}, "Debian 13 has nftables 0.9.3, and an agent needs nftables 0.9.8: install"),
        ({"packages": {**SOURCES, "nftables": Package("0.9.3-2")}}, "Debian 13 has nftables 0.9.3, and an agent needs"),
    ],
)
def test_what_the_system_lacks_is_named_with_what_mends_it(changes: dict[str, Any], said: str) -> None:
    (problem,) = agent(**changes)
    assert said in problem


def test_a_program_that_an_operators_list_leaves_out_is_asked_for_by_command() -> None:
    wanted = AGENT._replace(packages=["python3-docker"])
    assert judge(wanted, FRESH).problems == [
        "nftables is missing, and an agent needs it: apt-get install nftables.",
        "iproute2 is missing, and an agent needs it: apt-get install iproute2.",
    ]


def test_an_interpreter_that_the_package_of_the_sdk_is_not_for_is_named() -> None:
    (problem,) = agent(interpreter="/opt/py/bin/python", is_family_python=False)
    assert (
        "/opt/py/bin/python has no Docker SDK for Python, and packages of Debian 13 are for /usr/bin/python3: "
        in problem
    )
    assert "set ansible_python_interpreter to /usr/bin/python3, or install docker for /opt/py/bin/python" in problem
    assert agent(interpreter="/opt/py/bin/python", is_family_python=False, has_sdk=True) == []
    wanted = AGENT._replace(packages=["iproute2", "nftables"])
    assert judge(wanted, FRESH).problems == [
        "/usr/bin/python3 has no Docker SDK for Python: apt-get install python3-docker."
    ]


def test_five_things_that_lack_are_five_sentences_of_one_run() -> None:
    sources = {name: package for name, package in SOURCES.items() if name != "python3-docker"}
    problems = agent(
        packages={**sources, "nftables": Package("0.9.3-2")},
        missing_modules=("vxlan", "macvlan"),
        engine=RUNNING._replace(options=("name=rootless",)),
        engine_programs=(DOCKER_CE,),
    )
    assert len(problems) == 5
    assert all(problem.endswith(".") and "\n" not in problem for problem in problems)


def test_a_distribution_that_is_not_known_is_said_beside_what_else_lacks() -> None:
    unknown = Wanted("agent", Family("Plan 9 4"), engines={"distribution": [], "docker-ce": []})
    first, *others = judge(unknown, Host(missing_modules=("vxlan",), has_sdk=True)).problems
    assert first.startswith("The kernel lacks vxlan")
    assert others[0].startswith("Plan 9 4 has packages that this collection does not know: ")


@pytest.mark.parametrize("version", ["2.4.22-0ubuntu0.22.04.2", "2.2.9-2+deb11u6", "1:2.5"])
def test_a_gateway_needs_a_newer_haproxy_installed_or_not(version: str) -> None:
    wanted = Wanted("gateway", FAMILY, ["haproxy", "nftables"])
    short = version.rpartition(":")[2].partition("-")[0]
    for package in (Package(installed=version, candidate="3.0"), Package(candidate=version)):
        (problem,) = judge(wanted, Host(packages={**SOURCES, "haproxy": package})).problems
        assert problem == f"Debian 13 has HAProxy {short}, and a gateway needs HAProxy 2.6: use another host."
    assert judge(wanted, Host(packages=SOURCES)).problems == []


@pytest.mark.parametrize(
    ("python", "venv", "said"),
    [
        ((), "", "manager_python: there is no Python at /usr/bin/python3: install python3.11."),
        (
            (3, 9),
            "",
            "/usr/bin/python3 is Python 3.9, and a manager needs Python 3.11 for Ansible: install python3.11.",
        ),
        ((3, 12), "No module named 'ensurepip'", "/usr/bin/python3 makes no virtual environments (No module named "),
    ],
)
def test_a_manager_needs_a_newer_python(python: tuple[int, ...], venv: str, said: str) -> None:
    wanted = Wanted("manager", FAMILY, manager_python="/usr/bin/python3")
    (problem,) = judge(wanted, Host(manager_python=python, manager_venv=venv)).problems
    assert problem.startswith(said)
    assert judge(wanted, Host(manager_python=(3, 11))).problems == []


def test_packages_of_a_toolkit_come_where_they_exist() -> None:
    wanted = Wanted("accelerator", FAMILY, optional=["haproxy", "nvidia-container-toolkit"])
    assert judge(wanted, FRESH) == ("", ["haproxy"], [])


def test_a_gateway_where_selinux_confines_haproxy_needs_its_switch() -> None:
    wanted = Wanted("gateway", FAMILY, ["haproxy", "nftables"])
    assert judge(wanted, FRESH).problems == []
    (problem,) = judge(wanted, FRESH._replace(is_haproxy_confined=True)).problems
    assert problem == "SELinux keeps HAProxy from the ports of sessions: setsebool -P haproxy_connect_any 1."


SEMANAGE = "policycoreutils-python-utils"


@pytest.mark.parametrize(
    ("wanted", "role"),
    [(AGENT, "an agent"), (Wanted("gateway", FAMILY, ["haproxy", "nftables"]), "a gateway")],
)
def test_a_host_whose_selinux_has_to_know_our_folders_needs_semanage(wanted: Wanted, role: str) -> None:
    lacking = FRESH._replace(lacks_semanage=True)
    expected = f"SELinux has to know the types of folders of {role}, and semanage is missing: "
    assert judge(wanted, lacking).problems == [f"{expected}apt-get install {SEMANAGE}."]
    unknown = wanted._replace(family=Family("Plan 9 4", "apt"))
    assert f"{expected}install it ({SEMANAGE})." in judge(unknown, lacking).problems
    coming = lacking._replace(packages={**SOURCES, SEMANAGE: Package(candidate="3.8")})
    assert judge(wanted._replace(packages=[*wanted.packages, SEMANAGE]), coming).problems == []


KIT = {"path": "/kits/kit.tar.gz", "architecture": "x86_64"}
ALONE = AGENT._replace(packages=[], install=False, kit=KIT)
THERE = Host(
    programs=dict.fromkeys(("nft", "ip", "modprobe", "sysctl"), "9.9"), engine=RUNNING, machine="x86_64", has_sdk=True
)


def alone(*, family: Family = FAMILY, wanted: Wanted = ALONE, **host: Any) -> list[str]:
    """Return what a host that nothing is installed on lacks to be an agent, which it was before these changes."""
    verdict = judge(wanted._replace(family=family), THERE._replace(**host))
    assert verdict.packages == []
    return list(verdict.problems)


@pytest.mark.parametrize("family", [FAMILY, Family("Plan 9 4")])
def test_nothing_is_installed_on_a_host_that_has_all_of_whatever_distribution(family: Family) -> None:
    assert judge(ALONE._replace(family=family), THERE) == ("present", [], [])


def test_the_engine_of_an_earlier_provisioning_is_kept_where_nothing_is_installed_any_more() -> None:
    assert judge(ALONE, THERE._replace(kept_engine="distribution")) == ("distribution", [], [])
    assert "no Docker engine answers" in alone(kept_engine="distribution", engine=None)[0]


def test_a_host_that_lacks_everything_is_told_all_of_it_at_once() -> None:
    wanted = ALONE._replace(kit={"path": "host"}, features=("kit", "wireguard", "access"))
    problems = alone(
        family=Family("Plan 9 4"),
        wanted=wanted,
        has_systemd=False,
        missing_modules=("vxlan", "wireguard"),
        programs={},
        engine=None,
        has_sdk=False,
        missing_programs=("busybox", "sshd"),
    )
    assert all(problem.endswith(".") and "\n" not in problem for problem in problems)
    begins = (
        "systemd does not run on this host (Plan 9 4): ",
        "The kernel lacks vxlan, so sessions cannot span several agents: ",
        "The kernel lacks wireguard, so what agents send each other cannot be encrypted without wireguard-go: ",
        *(
            f"{title} is missing, and an agent needs it."
            for title in ("nftables", "iproute2", "modprobe", "sysctl", "WireGuard's wg", "sudo")
        ),
        "This host has no busybox, sshd for the runtime kit: install what has them, or set agent_kit to a file that ",
        "/usr/bin/python3 has no Docker SDK for Python: install it for /usr/bin/python3, or name the Python of a virt",
        "agent_install is false, and no Docker engine answers at unix:///var/run/docker.sock: systemctl enable --now ",
    )
    assert [problem[: len(begin)] for problem, begin in zip(problems, begins, strict=True)] == [*begins]


def test_options_that_install_something_are_refused_where_nothing_is_installed() -> None:
    assert alone(wanted=ALONE._replace(packages=["ethtool", "nvtop"], engine="docker-ce")) == [
        "agent_install is false, and nothing installs ethtool, nvtop: empty the lists of packages.",
        "agent_install is false, and agent_engine docker-ce is one to install: set it to present.",
    ]
    assert alone(wanted=ALONE._replace(engine="present", optional=["nvidia-container-toolkit"])) == []


def test_a_host_whose_package_manager_is_not_asked_says_its_commands_all_the_same() -> None:
    programs = {name: version for name, version in THERE.programs.items() if name != "nft"}
    assert alone(programs=programs) == ["nftables is missing, and an agent needs it: apt-get install nftables."]
    assert alone(has_sdk=False)[0].startswith(
        "/usr/bin/python3 has no Docker SDK for Python: apt-get install python3-docker, or name the Python of"
    )


@pytest.mark.parametrize("install", [True, False])
@pytest.mark.parametrize(
    ("kit", "said"),
    [
        (KIT, "agent_kit: /kits/kit.tar.gz is for x86_64, and this host is aarch64: make one with an agent_kit_host"),
        ({"path": "/kits/kit.tar.gz", "problem": "/kits/kit.tar.gz is damaged."}, "agent_kit: /kits/kit.tar.gz is dam"),
    ],
)
def test_a_kit_that_a_host_cannot_use_is_refused(kit: dict[str, str], said: str, install: bool) -> None:
    host = THERE._replace(machine="aarch64", packages=SOURCES)
    (problem,) = judge(AGENT._replace(kit=kit, install=install, packages=NEEDED if install else []), host).problems
    assert problem.startswith(said)


@pytest.mark.parametrize(("libc", "refused"), [("glibc 2.31", 1), ("glibc 2.34", 0), ("musl 1.2.5", 1), ("", 0)])
def test_a_kit_of_the_hosts_own_programs_needs_a_newer_c_library(libc: str, refused: int) -> None:
    host = FRESH._replace(libc=libc)
    problems = judge(AGENT._replace(kit={"path": "host"}), host).problems
    assert len(problems) == refused
    assert all(
        problem.startswith(f"This host has {libc}, and a kit of its programs needs glibc") for problem in problems
    )
    assert judge(AGENT._replace(kit=KIT), host._replace(machine="x86_64")).problems == []


def test_programs_of_the_kit_that_come_with_packages_need_not_be_there() -> None:
    wanted = AGENT._replace(kit={"path": "host"})
    assert judge(wanted, FRESH._replace(missing_programs=("busybox",))).problems == []


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ({"python": ()}, "agent_python: there is no Python at /opt/venv/bin/python: name one with the Docker SDK, or "),
        ({"python": (3, 8)}, "agent_python: /opt/venv/bin/python is Python 3.8, and an agent needs Python 3.9."),
        ({}, "/opt/venv/bin/python has no Docker SDK for Python: /opt/venv/bin/python -m pip install docker."),
    ],
)
def test_a_python_without_the_sdk_is_refused(host: dict[str, Any], said: str) -> None:
    python = {"interpreter": "/opt/venv/bin/python", "is_family_python": False, "has_sdk": False}
    (problem,) = alone(wanted=ALONE._replace(agent_python="/opt/venv/bin/python"), **{**python, **host})
    assert problem.startswith(said)


def test_the_option_of_a_python_without_the_sdk_is_named() -> None:
    host = FRESH._replace(interpreter="/opt/venv/bin/python", is_family_python=False)
    (problem,) = judge(AGENT._replace(agent_python="/opt/venv/bin/python"), host).problems
    assert ": set agent_python to /usr/bin/python3, or install docker for /opt/venv/bin/python (" in problem


def test_the_access_of_managers_needs_sudo() -> None:
    wanted = Wanted("access", Family("Plan 9 4"), install=False)
    assert judge(wanted, Host()).problems == ["sudo is missing, and the access of managers needs it."]
    assert judge(wanted, Host(programs={"sudo": "1.9.13"})).problems == []
