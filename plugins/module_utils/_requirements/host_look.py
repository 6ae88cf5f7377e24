# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Looks at what a host has of what its role needs. Changes nothing: no kernel module is loaded."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from .._host.kit_programs import find_missing
from .._host.packages import name_of, read_packages
from .._host.selinux import has_switch, is_enforced, is_off
from .engine_look import ask_engine, find_programs
from .requirements import HAPROXY_SWITCH, MODULES, WIREGUARD, Host, Wanted

# A feature is there if its path exists: loaded as a module, or, for some, built into the kernel.
_PATHS = {"br_netfilter": "proc/sys/net/bridge"}
# Interfaces in a network namespace of their own, which ends with the command: of modules without a path.
_TRIALS = {
    "macvlan": "ip link add name test0 type veth peer name test1 && ip link add link test0 name test2 type macvlan",
    "vxlan": "ip link add name test0 type vxlan id 1 dstport 4789",
}
_VERSIONS = {
    "ip": ["ip", "-Version"],
    "haproxy": ["haproxy", "-v"],
    **{name: [name, "--version"] for name in ("nft", "modprobe", "sudo", "sysctl", "wg")},
}
_PYTHON = "import sys; print(*sys.version_info[:2])"
_VENV = "import ensurepip, venv"
_SDK = "import docker"


def look(wanted: Wanted, kept_engine: str = "") -> Host:
    """Return what is on this host. ``kept_engine`` is the source of the engine of an earlier provisioning.

    Raises :class:`subprocess.CalledProcessError` or :class:`OSError`.
    """
    has_engine = bool(wanted.engines)
    names = {*wanted.packages, *wanted.optional, *(name for names in wanted.engines.values() for name in names)}
    programs = find_programs() if has_engine else ()
    manager_python, manager_venv = _look_at_python(wanted.manager_python, wanted.family.python)
    names |= {program.package for program in programs if program.package}
    interpreter, own = wanted.agent_python or sys.executable, not wanted.agent_python
    needs_module = "wireguard" in wanted.features and not wanted.install and shutil.which("wireguard-go") is None
    modules = [*(MODULES if wanted.role == "agent" else ()), *(WIREGUARD if needs_module else ())]
    engine = ask_engine(wanted.docker_host) if has_engine else None
    labels = engine.has_selinux if engine else wanted.role == "gateway" and has_switch(HAPROXY_SWITCH)
    return Host(
        packages=read_packages(wanted.family.manager, sorted(map(name_of, names))) if wanted.family.manager else {},
        programs={name: version for name in _VERSIONS for version in [_version(_VERSIONS[name])] if version},
        engine=engine,
        engine_programs=programs,
        kept_engine=kept_engine,
        missing_modules=find_missing_modules(modules),
        is_haproxy_confined=wanted.role == "gateway" and is_enforced() and is_off(HAPROXY_SWITCH),
        lacks_semanage=labels and shutil.which("semanage") is None and _succeeds(["selinuxenabled"]),
        nft_error=read_nft_error() if wanted.role in ("agent", "firewall", "gateway") else "",
        has_systemd=Path("/run/systemd/system").is_dir(),
        interpreter=interpreter,
        is_family_python=has_packages_of(interpreter, wanted.family.python),
        has_sdk=importlib.util.find_spec("docker") is not None if own else _succeeds([interpreter, "-I", "-c", _SDK]),
        manager_python=manager_python,
        manager_venv=manager_venv,
        python=sys.version_info[:2] if own else _look_at_python(interpreter, interpreter)[0],
        machine=platform.machine(),
        libc=" ".join(platform.libc_ver()).strip(),
        missing_programs=find_missing() if wanted.kit else (),
    )


def has_packages_of(interpreter: str, other: str) -> bool:
    """Return whether two interpreters are one: that of a virtual environment is a link, and has its own packages."""
    own = os.path.exists(os.path.join(os.path.dirname(os.path.dirname(interpreter)), "pyvenv.cfg"))
    return interpreter == other or (os.path.realpath(interpreter) == os.path.realpath(other) and not own)


def find_missing_modules(names: Iterable[str], root: Path = Path("/")) -> tuple[str, ...]:
    """Return those of the kernel modules that neither are there nor can be loaded."""
    return tuple(name for name in names if not _has_module(name, root))


def _has_module(name: str, root: Path) -> bool:
    paths = (root / "sys/module" / name, root / _PATHS.get(name, f"sys/module/{name}"))
    if any(path.exists() for path in paths) or _succeeds(["modprobe", "--dry-run", "--quiet", name]):
        return True
    return name in _TRIALS and _succeeds(["unshare", "--net", "sh", "-c", _TRIALS[name]])


def read_nft_error() -> str:
    """Return why nftables does not reach the kernel; empty if it does, or is not installed and a module is there."""
    if shutil.which("nft") is None:
        known = _succeeds(["modprobe", "--version"])
        return "there is no module nf_tables" if known and not _has_module("nf_tables", Path("/")) else ""
    result = _run(["nft", "list", "tables"])
    return "" if result.returncode == 0 else (result.stderr.strip().splitlines() or ["nft fails"])[0]


def _look_at_python(path: str, of_family: str) -> tuple[tuple[int, ...], str]:
    """Return the version of an interpreter, none without one, and why it makes no virtual environment."""
    result = _run([path, "-I", "-c", _PYTHON]) if path else None
    if result is None or result.returncode != 0:
        return (), ""
    version = tuple(map(int, result.stdout.split()))
    # What that of the distribution lacks is installed with the manager.
    lack = _run([path, "-I", "-c", _VENV]).stderr if os.path.realpath(path) != os.path.realpath(of_family) else ""
    return version, (lack.strip().splitlines() or [""])[-1]


def _version(command: Sequence[str]) -> str:
    result = _run(command)
    found = re.search(r"\d+(?:\.\d+)+|(?<=iproute2-)\w+|(?<=kmod version )\d+", result.stdout)
    return found[0] if found else ""


def _succeeds(command: Sequence[str]) -> bool:
    return _run(command).returncode == 0


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
