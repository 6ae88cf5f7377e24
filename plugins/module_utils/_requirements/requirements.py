# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judges whether a host can have a role: everything that it lacks, at once, and the packages to install.

Nothing here looks at a host: ``host_look`` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from .._docker.api_version import NEWEST
from .._host.installation import ENGINES
from .._host.kit_archive import HOST_KIT, problem_of
from .._host.kit_programs import OLDEST_LIBC, REMEDY
from .._host.packages import Package, name_of
from .engine_look import Engine, Program

PRESENT, DISTRIBUTION, DOCKER_CE = "present", "distribution", "docker-ce"
MODULES = {
    "overlay": "containers have no root file system",
    "vxlan": "sessions cannot span several agents",
    "macvlan": "sessions cannot span several agents",
    "br_netfilter": "the rules of the engine do not see what containers of one bridge send each other",
}
WIREGUARD = {"wireguard": "what agents send each other cannot be encrypted without wireguard-go"}
"""The kernel modules of an agent, and what is not possible without each."""

OLDEST_PYTHON = (3, 9)
OLDEST_PYTHON_OF_MANAGERS = (3, 11)
OLDEST_ENGINE = "20.10"

HAPROXY_SWITCH = "haproxy_connect_any"
"""The switch (boolean) of SELinux that lets HAProxy use any port."""

_NEEDED = {"agent": ("nft", "ip"), "firewall": ("nft", "ip"), "gateway": ("nft", "haproxy"), "access": ("sudo",)}
# What packages of a known distribution bring, or have at hand, for roles and their features.
_NEEDED_PRESENT = {"agent": ("modprobe", "sysctl"), "wireguard": ("wg",), "access": ("sudo",)}
# The oldest nft with which the rules were loaded and datagrams were sent.
_OLDEST = {"nft": "0.9.8", "haproxy": "2.6"}
_TITLES = {
    "nft": "nftables",
    "haproxy": "HAProxy",
    "ip": "iproute2",
    "wg": "WireGuard's wg",
}
_LOAD = "load it (modprobe {0}; in a container: on its host), or boot a kernel that has it"


class Family(NamedTuple):
    """What differs between distributions.

    ``name`` is that of this host's, with its version, and ``manager`` its package manager, empty if it is not known.
    ``install`` and ``remove`` are the beginnings of commands. ``programs`` has the packages of programs, and ``python``
    is the interpreter that packages of Python modules are for. ``hints`` say what to do about a package, a program, or
    ``sources``, ``engine``, ``modules`` and ``manager_python``.
    """

    name: str
    manager: str = ""
    install: str = ""
    remove: str = ""
    programs: Mapping[str, str] = {}
    python: str = "/usr/bin/python3"
    hints: Mapping[str, str] = {}


class Wanted(NamedTuple):
    """What a ``role`` is to get on a host.

    ``packages`` are needed, and those of ``optional`` are installed where they exist. ``engines`` are the packages of
    the engine by their source, the engine itself first, and ``engine`` is the source, empty for the usual one. With
    ``install`` false nothing is installed, and all must be there, also for the ``features``. ``agent_python`` is the
    interpreter with the SDK, empty for that of Ansible. ``kit`` has the ``path`` of the kit's archive, ``host`` for the
    programs of the host, its ``architecture``, and the ``problem`` why it cannot be read; it is empty without a kit.
    """

    role: str
    family: Family
    packages: Sequence[str] = ()
    optional: Sequence[str] = ()
    engine: str = ""
    engines: Mapping[str, Sequence[str]] = {}
    docker_host: str = "unix:///var/run/docker.sock"
    manager_python: str = ""
    install: bool = True
    features: Sequence[str] = ()
    agent_python: str = ""
    kit: Mapping[str, str] = {}


class Host(NamedTuple):
    """What is on a host, as far as its role needs it.

    ``packages`` are those that exist, installed or not. ``programs`` has the versions of those that are there.
    ``kept_engine`` is the source of the engine that an earlier provisioning has chosen. ``missing_modules`` are kernel
    modules that neither are loaded nor can be. ``nft_error`` is why nftables does not reach the kernel.
    ``is_haproxy_confined`` is whether SELinux keeps HAProxy from ports other than those of web servers, and
    ``lacks_semanage`` whether nothing can tell SELinux the types of our folders, which it has to know.
    ``manager_python`` is the version of that interpreter, and ``manager_venv`` why it makes no virtual environment.
    ``python`` is the version of the ``interpreter`` that is to have the SDK, and ``missing_programs`` are those that
    the host lacks for the kit.
    """

    packages: Mapping[str, Package] = {}
    programs: Mapping[str, str] = {}
    engine: Engine | None = None
    engine_programs: Sequence[Program] = ()
    kept_engine: str = ""
    missing_modules: Sequence[str] = ()
    nft_error: str = ""
    is_haproxy_confined: bool = False
    lacks_semanage: bool = False
    has_systemd: bool = True
    interpreter: str = "/usr/bin/python3"
    is_family_python: bool = True
    has_sdk: bool = True
    manager_python: tuple[int, ...] = ()
    manager_venv: str = ""
    python: tuple[int, ...] = OLDEST_PYTHON
    machine: str = ""
    libc: str = ""
    missing_programs: Sequence[str] = ()


class Verdict(NamedTuple):
    """The source of the ``engine``, empty for a role without one, the ``packages`` to install, and the ``problems``.

    Each problem is one sentence that says what to do.
    """

    engine: str
    packages: Sequence[str]
    problems: Sequence[str]


def judge(wanted: Wanted, host: Host) -> Verdict:
    """Return what to install, and everything that the host lacks."""
    engine = _choose_engine(wanted, host) if wanted.engines else ""
    refused = () if wanted.install else _problems_of_installation(wanted)
    if not wanted.install:
        wanted = wanted._replace(packages=(), optional=())
    of_engine = wanted.engines.get(engine, ()) if wanted.install else ()
    optional = [name for name in (*wanted.optional, *of_engine[1:]) if name_of(name) in host.packages]
    listed = {*map(name_of, wanted.packages)}
    packages = [*wanted.packages, *(name for name in (*of_engine[:1], *optional) if name_of(name) not in listed)]
    problems = [
        *refused,
        *_problems_of_system(wanted, host),
        *_problems_of_packages(wanted, host, packages),
        *_problems_of_programs(wanted, host),
        *_problems_of_kit(wanted, host),
    ]
    if wanted.engines:
        problems += _problems_of_sdk(wanted, host, packages)
        problems += _problems_of_engine(wanted, host, engine, packages)
    if wanted.role == "manager":
        problems += _problems_of_manager_python(wanted, host)
    return Verdict(engine, packages, problems)


def _problems_of_installation(wanted: Wanted) -> Iterator[str]:
    if wanted.packages:
        yield f"agent_install is false, and nothing installs {', '.join(wanted.packages)}: empty the lists of packages."
    if wanted.engine not in ("", PRESENT):
        yield f"agent_install is false, and agent_engine {wanted.engine} is one to install: set it to {PRESENT}."


def _choose_engine(wanted: Wanted, host: Host) -> str:
    # An engine in the operator's own list of packages.
    listed = {*map(name_of, wanted.packages)}
    named = next((source for source, names in wanted.engines.items() if listed.intersection(names[:1])), "")
    usual = PRESENT if host.engine or not wanted.install else DISTRIBUTION
    return wanted.engine or named or host.kept_engine or usual


def _problems_of_system(wanted: Wanted, host: Host) -> Iterator[str]:
    family = wanted.family
    if not host.has_systemd:
        yield f"systemd does not run on this host ({family.name}): use a host that it boots."
    for name in host.missing_modules:
        hint = family.hints.get("modules", "")
        lost = {**MODULES, **WIREGUARD}[name]
        yield (f"The kernel lacks {name}, so {lost}: {_LOAD.format(name)}{f' ({hint})' if hint else ''}.")


def _problems_of_packages(wanted: Wanted, host: Host, packages: Sequence[str]) -> Iterator[str]:
    family = wanted.family
    if not wanted.install:
        return
    if not family.manager:
        yield (
            f"{family.name} has packages that this collection does not know: use a host with a distribution that"
            " docs/hosts.md names, or install what an agent needs yourself, and set agent_install to false."
        )
        return
    # The names of files and groups are the package manager's affair.
    missing = [name for name in map(name_of, packages) if name and name not in host.packages and "@" not in name]
    hinted = [name for name in missing if name in family.hints]
    for name in hinted:
        yield f"The package sources of this host do not have {name}: {family.hints[name]}."
    others = [name for name in missing if name not in hinted]
    if others:
        hint = family.hints.get("sources", "add the package source that has it")
        yield f"The package sources of this host do not have {', '.join(others)}: {hint}."


def _problems_of_programs(wanted: Wanted, host: Host) -> Iterator[str]:
    family, coming = wanted.family, {*map(name_of, wanted.packages)}
    present = () if wanted.install else (wanted.role, *wanted.features)
    names = (*_NEEDED.get(wanted.role, ()), *(name for each in present for name in _NEEDED_PRESENT.get(each, ())))
    for name in dict.fromkeys(names):
        package, title, oldest = family.programs.get(name, name), _TITLES.get(name, name), _OLDEST.get(name, "")
        comes = package in coming and package in host.packages
        version = host.programs.get(name) or (host.packages[package].version if comes else "")
        if not version and package not in coming:
            install = f": {family.install} {package}" if family.install else ""
            yield f"{title} is missing, and {_a(wanted.role)} needs it{install}."
        elif version and _number(version) < _number(oldest):
            hint = family.hints.get(name, f"install {title} {oldest} or later")
            yield f"{family.name} has {title} {_short(version)}, and {_a(wanted.role)} needs {title} {oldest}: {hint}."
    if host.is_haproxy_confined:
        yield f"SELinux keeps HAProxy from the ports of sessions: setsebool -P {HAPROXY_SWITCH} 1."
    package = family.programs.get("semanage", "policycoreutils-python-utils")
    if host.lacks_semanage and not (package in coming and package in host.packages):
        install = f"{family.install} {package}" if family.install else f"install it ({package})"
        yield f"SELinux has to know the types of folders of {_a(wanted.role)}, and semanage is missing: {install}."
    if "nft" in _NEEDED.get(wanted.role, ()) and host.nft_error:
        hint = family.hints.get("modules", "")
        yield (
            f"The kernel has no nftables ({host.nft_error}), and {_a(wanted.role)} needs its rules:"
            f" {_LOAD.format('nf_tables')}{f' ({hint})' if hint else ''}."
        )


def _problems_of_sdk(wanted: Wanted, host: Host, packages: Sequence[str]) -> Iterator[str]:
    family = wanted.family
    package = family.programs.get("sdk", "python3-docker")
    if not host.python:
        yield f"agent_python: there is no Python at {host.interpreter}: name one with the Docker SDK, or leave it out."
    elif host.python < OLDEST_PYTHON:
        needed = _dotted(OLDEST_PYTHON)
        yield f"agent_python: {host.interpreter} is Python {_dotted(host.python)}, and an agent needs Python {needed}."
    elif host.has_sdk or (host.is_family_python and package in map(name_of, packages)):
        return
    elif host.is_family_python:
        install = f"{family.install} {package}" if family.install else f"install it for {host.interpreter}"
        venv = "" if wanted.install else ", or name the Python of a virtual environment that has it in agent_python"
        yield f"{host.interpreter} has no Docker SDK for Python: {install}{venv}."
    elif not wanted.install:
        yield f"{host.interpreter} has no Docker SDK for Python: {host.interpreter} -m pip install docker."
    else:
        option = "agent_python" if wanted.agent_python else "ansible_python_interpreter"
        yield (
            f"{host.interpreter} has no Docker SDK for Python, and packages of {family.name} are for {family.python}:"
            f" set {option} to {family.python}, or install docker for {host.interpreter}"
            f" ({host.interpreter} -m pip install docker)."
        )


def _problems_of_engine(wanted: Wanted, host: Host, choice: str, packages: Sequence[str]) -> Iterator[str]:
    address, engine = wanted.docker_host, host.engine
    ours = next((program for program in host.engine_programs if not program.is_snap), None)
    snap = next((program for program in host.engine_programs if program.is_snap), None)
    if ours and snap:
        yield f"This host has two Docker engines, {ours} and {snap}: keep the first (snap remove docker)."
    elif snap:
        yield (
            f"The engine of this host is {snap}, which sees only some of the host's folders: snap remove docker, then"
            " provision this host again."
        )
    elif engine and engine.is_podman:
        yield (
            f"{address} is Podman's, and sessions need a Docker engine: systemctl disable --now podman.socket,"
            f" {wanted.family.remove or 'remove'} podman-docker."
        )
        return
    if engine:
        yield from _problems_of_running_engine(address, engine)
    elif not wanted.install:
        yield (
            f"agent_install is false, and no Docker engine answers at {address}: systemctl enable --now docker.service,"
            f" or install Docker {OLDEST_ENGINE} or later (https://docs.docker.com/engine/install/)."
        )
    elif choice == PRESENT:
        yield (
            f"agent_engine is {PRESENT}, and no Docker engine answers at {address}: systemctl enable --now"
            f" docker.service, or set agent_engine to {DISTRIBUTION}."
        )
    coming = next((name for name in map(name_of, packages) if name in ENGINES), "")
    if coming and not snap:
        yield from _problems_of_coming_engine(wanted.family, host, coming, ours)
    elif choice != PRESENT and not coming and wanted.family.manager and wanted.install:
        hint = wanted.family.hints.get("engine", "install one")
        yield f"{wanted.family.name} has no package of a Docker engine: {hint}."


def _problems_of_coming_engine(family: Family, host: Host, coming: str, there: Program | None) -> Iterator[str]:
    package = host.packages.get(coming, Package())
    if there and there.package != coming and not package.installed:
        remove = f"{family.remove} {there.package}" if there.package else f"{there.path} and its unit"
        yield (
            f"This host has a Docker engine, {there}, and {coming} would take its place and stop its containers:"
            f" set agent_engine to {PRESENT}, with no engine in agent_packages, and systemctl enable --now"
            f" docker.service, or remove that engine first ({remove})."
        )
    elif package.version and not host.engine and _number(package.version) < _number(OLDEST_ENGINE):
        yield _engine_is_old(_short(package.version))


def _problems_of_running_engine(address: str, engine: Engine) -> Iterator[str]:
    if _number(engine.version) < _number(OLDEST_ENGINE):
        yield _engine_is_old(engine.version)
    if _number(engine.oldest_api) > _number(NEWEST):
        yield (
            f"The Docker engine {engine.version} is too new: the oldest API that it answers is {engine.oldest_api}, and"
            f" this collection knows {NEWEST}: upgrade the collection, or install an older engine."
        )
    names = {option.partition("name=")[2].partition(",")[0] for option in engine.options}
    if "rootless" in names:
        yield (
            f"The Docker engine at {address} is rootless, and cannot make the networks of sessions: set"
            " agent_docker_host to that of an engine that root runs, or systemctl --user disable --now docker.service"
            " as its user, and provision this host again."
        )


def _engine_is_old(version: str) -> str:
    return f"The Docker engine is {version}, and an agent needs {OLDEST_ENGINE}: upgrade it."


def _problems_of_manager_python(wanted: Wanted, host: Host) -> Iterator[str]:
    python, oldest = wanted.manager_python, _dotted(OLDEST_PYTHON_OF_MANAGERS)
    hint = wanted.family.hints.get(
        "manager_python", f"install Python {oldest} beside it, and name it in manager_python"
    )
    if not host.manager_python:
        yield f"manager_python: there is no Python at {python}: {hint}."
    elif host.manager_python < OLDEST_PYTHON_OF_MANAGERS:
        found = _dotted(host.manager_python)
        yield f"{python} is Python {found}, and a manager needs Python {oldest} for Ansible: {hint}."
    elif host.manager_venv:
        yield f"{python} makes no virtual environments ({host.manager_venv}): install the package with its module venv."


def _problems_of_kit(wanted: Wanted, host: Host) -> Iterator[str]:
    kit, missing = wanted.kit, ", ".join(host.missing_programs)
    problem = kit.get("problem") or (
        "architecture" in kit and problem_of(kit["path"], kit["architecture"], host.machine)
    )
    if problem:
        yield f"agent_kit: {problem}"
    elif kit.get("path") == HOST_KIT and host.libc and _number(host.libc) < _number(OLDEST_LIBC):
        yield f"This host has {host.libc}, and a kit of its programs needs glibc {OLDEST_LIBC}: {REMEDY}."
    elif kit.get("path") == HOST_KIT and not wanted.install and missing:
        yield f"This host has no {missing} for the runtime kit: install what has them, or {REMEDY}."


def _a(role: str) -> str:
    return {"agent": "an agent", "firewall": "its firewall", "access": "the access of managers"}.get(role, f"a {role}")


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version[:2]))


def _number(version: str) -> tuple[int, ...]:
    """Return the numbers of a version without the epoch and what a distribution has added; none for an empty text."""
    found = re.search(r"\d+(?:\.\d+)*", _short(version))
    return tuple(map(int, found[0].split("."))) if found else ()


def _short(version: str) -> str:
    """Return a version without the epoch, and without what a distribution has added."""
    return re.split("[-+~]", version.rpartition(":")[2])[0]
