"""The machine's Debian packages: required tools, package mirror, apt settings."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.lab.command import LabError, output, step, succeeds

#: Debian packages by the commands that they provide.
PACKAGE_OF = {
    "chromium-headless-shell": "chromium-headless-shell",
    "docker": "docker.io",
    "dockerd": "docker.io",
    "haproxy": "haproxy",
    "cmake": "cmake",
    "g++": "g++",
    "ip": "iproute2",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "npm": "npm",
    "nsenter": "util-linux",
    "ssh-keygen": "openssh-client",
}
#: Since Debian 13 the docker command is in this package, which earlier releases do not have.
DOCKER_COMMAND_PACKAGE = "docker-cli"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
POLICY = Path("/usr/sbin/policy-rc.d")

#: Settings with which apt gives up a host that does not answer, within seconds.
_IMPATIENT = ("-o", "Acquire::http::Timeout=10", "-o", "Acquire::https::Timeout=10", "-o", "Acquire::Retries=0")
APT_HELPER = "/usr/lib/apt/apt-helper"
#: What apt says of a host that it does not reach.
_UNREACHABLE = re.compile(
    r"(?:Could not resolve|Temporary failure resolving|Could not connect to|Unable to connect to"
    r"|Cannot initiate the connection to|Connection timed out \[IP:) '?([^\s':]+)"
)
#: apt settings for access to packages, and for whether outdated mirrors are accepted.
_FETCHING = re.compile(r'^Acquire::(https?::(?!.*Auto-Detect)|Check-|Retries|ForceIPv).* "[^"]+";$')


def require(*commands: str) -> None:
    """Install the packages of missing commands; what another lab, or a test, installs at that time is waited for."""
    if not _missing(commands):
        return
    if not shutil.which("apt-get"):
        raise LabError(f"install {', '.join(sorted(_missing(commands)))}: this machine has no apt-get")
    with _one_at_a_time():
        missing = sorted(_missing(commands))
        if missing:
            with step(f"installed {', '.join(missing)}"):
                _install(missing)
                if "docker" in commands and not shutil.which("docker"):
                    _install([DOCKER_COMMAND_PACKAGE])


def _missing(commands: Iterable[str]) -> set[str]:
    """Return the packages that are missing for commands."""
    missing = {PACKAGE_OF[command] for command in commands if not shutil.which(command)}
    if "mmdebstrap" in commands and not KEYRING.exists():
        missing.add("debian-archive-keyring")
    return missing


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Lock the folder of policy-rc.d, which an installation that ends first would remove for the others."""
    folder = os.open(POLICY.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _install(packages: list[str]) -> None:
    """Install packages without starting their daemons, now or at the next boot."""
    # Wait for another running apt-get.
    install = ("-o", "DPkg::Lock::Timeout=300", "install", "-y", "-q", "--no-install-recommends", *packages)
    with _no_service_starts():
        with step("  downloads"):
            _download(*install, "--download-only")
        _apt(*install)
    if "haproxy" in packages:
        succeeds("systemctl", "disable", "haproxy.service")
    if "docker.io" in packages:
        # The lab's engine is private: the machine's own must not start at the next boot.
        succeeds("systemctl", "disable", "docker.service", "docker.socket", "containerd.service")


def _download(*arguments: str) -> None:
    """Download packages, with new package lists if those of the machine are missing or outdated."""
    try:
        _apt(*_IMPATIENT, *arguments)
    except LabError as error:
        _raise_if_unreachable(error)
        try:
            _apt(*_IMPATIENT, "update", "-q")
            _apt(*_IMPATIENT, *arguments)
        except LabError as second:
            _raise_if_unreachable(second)
            raise


def _apt(*arguments: str) -> None:
    output("apt-get", *arguments, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, timeout=600)


def _raise_if_unreachable(error: LabError) -> None:
    """Raise a LabError that names the host which apt does not reach, if that is the reason of an error."""
    if match := _UNREACHABLE.search(str(error)):
        raise LabError(f"packages cannot be downloaded from {match[1]}: this machine does not reach it") from None


def check_mirror(suite: str) -> None:
    """Raise LabError, after seconds, unless the machine's mirror offers a suite."""
    url = f"{configured_mirror().rstrip('/')}/dists/{suite}/InRelease"
    with tempfile.TemporaryDirectory() as folder:
        try:
            output(APT_HELPER, *_IMPATIENT, "download-file", url, f"{folder}/InRelease", timeout=25)
        except LabError as error:
            match = re.search(r"Failed to fetch \S+\s+(.+)", str(error))
            reason = match[1] if match else "no answer within 25 s" if "did not end" in str(error) else str(error)
            raise LabError(
                f"the Debian packages of the lab's images cannot be downloaded from {url}: {reason}"
            ) from None


@contextlib.contextmanager
def _no_service_starts() -> Iterator[None]:
    """Forbid package scripts to start services, by Debian's policy-rc.d."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


@functools.cache
def mirror() -> str | None:
    """Return the URL of the machine's Debian mirror, or None if it is not a Debian machine.

    ``LAB_DEBIAN_MIRROR`` in the environment takes precedence.
    """
    if os.environ.get("LAB_DEBIAN_MIRROR"):
        return os.environ["LAB_DEBIAN_MIRROR"]
    release = _os_release()
    if release.get("ID") != "debian" or not shutil.which("apt-get"):
        return None
    lines = output("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
    for line in lines.splitlines():
        url, suite, component = line.split()
        if suite in {release.get("VERSION_CODENAME"), "stable"} and component == "main":
            return url
    return None


def configured_mirror() -> str:
    """Return the URL of the machine's Debian mirror."""
    url = mirror()
    if not url:
        raise LabError("no Debian mirror is configured on this machine: set LAB_DEBIAN_MIRROR")
    return url


def apt_fetch_settings() -> str:
    """Return the machine's apt settings for fetching (proxies, checks, retries) as lines of an apt configuration."""
    if not shutil.which("apt-config"):
        return ""
    settings = [line for line in output("apt-config", "dump").splitlines() if _FETCHING.match(line)]
    credentials = 'Dir::Etc::netrc "/etc/apt/auth.conf";\nDir::Etc::netrcparts "/etc/apt/auth.conf.d";\n'
    return 'Acquire::Retries "3";\n' + "".join(f"{line}\n" for line in settings) + credentials


def _os_release() -> dict[str, str]:
    """Return the fields of /etc/os-release."""
    with contextlib.suppress(FileNotFoundError):
        text = Path("/etc/os-release").read_text()
        return {key: value.strip('"') for key, _mark, value in (line.partition("=") for line in text.splitlines())}
    return {}
