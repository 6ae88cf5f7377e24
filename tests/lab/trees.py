"""Debian root folders: a small base from packages (or from a pulled image), extended by the machine's apt."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.lab.command import LabError, output, run_logged
from tests.lab.debian import KEYRING, apt_fetch_settings, configured_mirror
from tests.lab.engine import Engine
from tests.lab.identity import Lab
from tests.lab.leftovers import join_cgroup_line, remove_folder

#: The part of the lab's cgroup for image builds.
BUILDERS = "build"
#: Packages of every tree, for the session image with Python and for hosts.
BASE_PACKAGES = ("python3", "iproute2", "iputils-ping", "procps")

_APT_OPTIONS = """\
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
"""
#: Debian 12 has two packages for merged /usr, and apt would choose the one that depends on 45 MB of Perl.
_PINS = r"Package: usrmerge\nPin: release *\nPin-Priority: -1\n"
_MERGED_USR = (
    "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
    f"--setup-hook=printf '{_PINS}' > \"$1/etc/apt/preferences.d/lab\"",
)
#: Debian 11 has none of them, without which the hook fails. Its installer makes these links.
_LINKED_USR = (
    '--setup-hook=for name in bin lib lib64 sbin; do mkdir -p "$1/usr/$name" && ln -s "usr/$name" "$1/$name"; done',
)
#: No documentation, and no fsync: a tree damaged by a crash is built again.
_DPKG_OPTIONS = """\
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/lintian/*
force-unsafe-io
"""
#: Excluded from images: what a container gets from its engine, and apt's caches.
_EXCLUDED = ("./dev/*", "./proc/*", "./sys/*", "./run/*", "./tmp/*", "./var/cache/apt/*")
_LISTS = "./var/lib/apt/lists/*"


def split_suite(suite: str) -> tuple[str, str]:
    """Return the suite that a tree is based on, and the newer one of some packages: none, or ``sid`` of trixie-sid."""
    base, _hyphen, newer = suite.partition("-")
    return base, newer


@dataclass(frozen=True)
class Tree:
    """A Debian root folder that is being built."""

    lab: Lab
    suite: str
    purpose: str = "host"

    @property
    def name(self) -> str:
        """The name of the tree's folder and log."""
        return f"{self.suite}-{self.purpose}"

    @property
    def root(self) -> Path:
        """The root folder."""
        return self.lab.folder / "build" / self.name

    @property
    def log(self) -> Path:
        """The log of the build commands."""
        return self.lab.logs / f"{self.name}.log"

    @property
    def _settings(self) -> Path:
        return self.root.with_suffix(".apt.conf")

    def create_base(self, engine: Engine, pull: bool) -> None:
        """Create the base, from packages or from a pulled image, and replace leftovers of an earlier run."""
        remove_folder(self.root)
        self.root.mkdir(parents=True)
        self._write_settings()
        if not (pull and self._pull(engine)):
            self._bootstrap()
        for name in ("etc/resolv.conf", "etc/hostname"):  # copies of the machine's
            (self.root / name).unlink(missing_ok=True)

    def _write_settings(self) -> None:
        self.log.unlink(missing_ok=True)
        # Read before the tree's own /etc/apt; dpkg then runs inside the tree.
        outside = f'Dir "{self.root}";\nDPkg::Chroot-Directory "{self.root}";\n'
        self._settings.write_text(outside + _APT_OPTIONS + apt_fetch_settings())

    def copy(self, purpose: str) -> Tree:
        """Return a copy of this tree in its current state."""
        other = Tree(self.lab, self.suite, purpose)
        remove_folder(other.root)
        output("cp", "-a", str(self.root), str(other.root), timeout=300)
        other._write_settings()
        return other

    def _bootstrap(self) -> None:
        """Create the base with mmdebstrap: half the time and size of debootstrap, as it unpacks no documentation."""
        url = configured_mirror()
        base, _newer = split_suite(self.suite)
        settings = self.root.with_suffix(".bootstrap.conf")
        settings.write_text(_APT_OPTIONS + apt_fetch_settings())
        excluded = self.root.with_suffix(".dpkg.cfg")
        excluded.write_text(_DPKG_OPTIONS)
        self._run(
            "mmdebstrap",
            "--mode=root",
            "--variant=minbase",
            "--format=directory",
            f"--include={','.join(BASE_PACKAGES)}",
            f"--aptopt={settings}",
            f"--dpkgopt={excluded}",
            "--skip=cleanup/apt/lists",
            *(_LINKED_USR if base == "bullseye" else _MERGED_USR),
            base,
            str(self.root),
            f"deb [signed-by={KEYRING}] {url} {base} main",
            env={**os.environ, "TMPDIR": str(self.root.parent)},
        )
        (self.root / "etc/apt/apt.conf.d/99mmdebstrap").unlink()  # settings of this machine, not of the hosts

    def _pull(self, engine: Engine) -> bool:
        """Create the base from the distribution's image, if a registry responds in time; its package sources remain."""
        image = f"debian:{split_suite(self.suite)[0]}-slim"
        was_present = engine.has("image", image)
        try:
            engine.docker("pull", "--quiet", image, timeout=60)
        except LabError:
            return False
        self._unpack(engine, image)
        if not was_present:
            engine.docker("rmi", image)
        for hook in (self.root / "etc/apt/apt.conf.d").glob("docker-*"):
            hook.unlink()  # they clear apt's cache, which is still needed
        (self.root / "etc/dpkg/dpkg.cfg.d/lab").write_text(_DPKG_OPTIONS)
        self.apt("update")
        self.apt("install", *BASE_PACKAGES)
        return True

    def _unpack(self, engine: Engine, image: str) -> None:
        """Unpack an image into the tree, through a container that is never started."""
        name = f"{self.lab.name}-{self.suite}"
        if engine.has("container", name):  # left by a killed run
            engine.docker("rm", name)
        engine.docker("create", "--name", name, image)
        archive = self.root.with_suffix(".tar")
        engine.docker("export", "--output", str(archive), name)
        engine.docker("rm", name)
        output("tar", "-C", str(self.root), "-xf", str(archive), timeout=300)
        archive.unlink()

    def apt(self, *arguments: str) -> None:
        """Run the machine's apt-get on the tree: package scripts run inside it, downloads outside.

        It has its own mount and process namespaces, so its /proc and processes of packages end with the command.
        """
        policy = self.root / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        script = f"mount -t proc proc '{self.root}/proc' && exec apt-get -y -q \"$@\""
        alone = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")
        env = {**os.environ, "APT_CONFIG": str(self._settings), "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        self._run(*alone, "sh", "-euc", script, "apt-get", *arguments, env=env)
        policy.unlink()

    def add_suite(self, suite: str) -> None:
        """Let apt know the packages of another suite, which it installs only if that is its target release."""
        folder = self.root / "etc/apt"
        url = configured_mirror()
        (folder / f"sources.list.d/{suite}.list").write_text(f"deb [signed-by={KEYRING}] {url} {suite} main\n")
        preferences = folder / "preferences.d"
        preferences.mkdir(exist_ok=True)
        (preferences / suite).write_text(f"Package: *\nPin: release n={suite}\nPin-Priority: 100\n")
        self.apt("update")

    def run_in(self, *argv: str, mounted: Path | None = None, timeout: float = 900) -> None:
        """Run a command inside the tree, with a folder of the machine at ``/mnt`` if one is given."""
        env = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin", "LC_ALL": "C.UTF-8"}
        if mounted is None:
            self._run("chroot", str(self.root), *argv, env=env, timeout=timeout)
            return
        script = f"mount --bind '{mounted}' '{self.root}/mnt' && exec chroot '{self.root}' \"$@\""
        alone = ("unshare", "--mount", "--propagation", "private")
        self._run(*alone, "sh", "-euc", script, argv[0], *argv, env=env, timeout=timeout)

    def _run(self, *argv: str, env: Mapping[str, str], timeout: float = 900) -> None:
        """Run a command in the lab's cgroup, so that the next `up` can kill it if this one is killed."""
        enter = f'{join_cgroup_line(self.lab, BUILDERS)}; exec "$@"'
        run_logged(self.log, "sh", "-euc", enter, argv[0], *argv, env=env, timeout=timeout)

    def pack(self, archive: Path, newer: Path | None = None, lists: bool = False) -> None:
        """Write the tree into a tar file; without ``lists`` not those of packages, which are larger than the rest.

        With ``newer``, only files changed since that file was written, and all folders; removed files are not recorded.
        """
        excluded = [f"--exclude={pattern}" for pattern in (*_EXCLUDED, *([] if lists else [_LISTS]))]
        options = ["-C", str(self.root), "--sort=name", "--numeric-owner", "--xattrs", *excluded]
        newer_option = [f"--newer={newer}"] if newer else []
        output("tar", *options, *newer_option, "-cf", str(archive), ".", timeout=300)
