"""Debian trees: a small base from packages (or from a pulled image), grown by the machine's own apt."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.lab.command import LabError, output, run_logged
from tests.lab.debian import KEYRING, apt_fetch_settings, mirror
from tests.lab.engine import Engine
from tests.lab.identity import Lab
from tests.lab.leftovers import join_cgroup_line, remove_folder

#: The part of the lab's cgroup in which trees grow.
BUILDERS = "build"
#: In every tree: what a session image with Python offers, and what a host has too.
BASE_PACKAGES = ("python3", "iproute2", "iputils-ping", "procps")

_APT_OPTIONS = """\
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
"""
#: Debian 12 has two packages for one purpose, and apt would take the one that drags in 45 MB of Perl.
_PINS = r"Package: usrmerge\nPin: release *\nPin-Priority: -1\n"
_MERGED_USR = (
    "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
    f"--setup-hook=printf '{_PINS}' > \"$1/etc/apt/preferences.d/lab\"",
)
#: Nobody reads manuals in the lab; a power cut that tears a tree only means building it again.
_DPKG_OPTIONS = """\
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/lintian/*
force-unsafe-io
"""
#: Not part of an image: what a container gets from its engine, and what apt can make anew.
_EXCLUDED = ("./dev/*", "./proc/*", "./sys/*", "./run/*", "./tmp/*", "./var/cache/apt/*")


@dataclass(frozen=True)
class Tree:
    """A Debian root folder in the making."""

    lab: Lab
    suite: str
    purpose: str = "host"

    @property
    def name(self) -> str:
        """What the tree's folder and log are called."""
        return f"{self.suite}-{self.purpose}"

    @property
    def root(self) -> Path:
        """The folder itself."""
        return self.lab.folder / "build" / self.name

    @property
    def log(self) -> Path:
        """Where the building commands write."""
        return self.lab.logs / f"{self.name}.log"

    @property
    def _settings(self) -> Path:
        return self.root.with_suffix(".apt.conf")

    def create_base(self, engine: Engine, pull: bool) -> None:
        """Make the base, from packages or from a pulled image, in place of whatever an earlier run left there."""
        remove_folder(self.root)
        self.root.mkdir(parents=True)
        self._write_settings()
        if not (pull and self._pull(engine)):
            self._bootstrap()
        for name in ("etc/resolv.conf", "etc/hostname"):  # copies of the machine's
            (self.root / name).unlink(missing_ok=True)

    def _write_settings(self) -> None:
        self.log.unlink(missing_ok=True)
        # Set before any file of the tree's own /etc/apt is read; dpkg then runs inside the tree.
        outside = f'Dir "{self.root}";\nDPkg::Chroot-Directory "{self.root}";\n'
        self._settings.write_text(outside + _APT_OPTIONS + apt_fetch_settings())

    def copy(self, purpose: str) -> Tree:
        """Return a second tree as far as this one has grown."""
        other = Tree(self.lab, self.suite, purpose)
        remove_folder(other.root)
        output("cp", "-a", str(self.root), str(other.root), timeout=300)
        other._write_settings()
        return other

    def _bootstrap(self) -> None:
        """Make the base with mmdebstrap: debootstrap's job in half the time and size, as it never unpacks the docs."""
        url = mirror()
        if not url:
            raise LabError("no Debian mirror is configured on this machine: name one in LAB_DEBIAN_MIRROR")
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
            *_MERGED_USR,
            self.suite,
            str(self.root),
            f"deb [signed-by={KEYRING}] {url} {self.suite} main",
            env={**os.environ, "TMPDIR": str(self.root.parent)},
        )
        (self.root / "etc/apt/apt.conf.d/99mmdebstrap").unlink()  # how this machine fetches is not the hosts' business

    def _pull(self, engine: Engine) -> bool:
        """Make the base from the distribution's image, if a registry answers soon; its own package sources stay."""
        image = f"debian:{self.suite}-slim"
        was_present = engine.has("image", image)
        try:
            engine.docker("pull", "--quiet", image, timeout=60)
        except LabError:
            return False
        self._unpack(engine, image)
        if not was_present:
            engine.docker("rmi", image)
        for hook in (self.root / "etc/apt/apt.conf.d").glob("docker-*"):
            hook.unlink()  # they empty apt's cache, and the apt that we run is the machine's
        (self.root / "etc/dpkg/dpkg.cfg.d/lab").write_text(_DPKG_OPTIONS)
        self.apt("update")
        self.apt("install", *BASE_PACKAGES)
        return True

    def _unpack(self, engine: Engine, image: str) -> None:
        """Unpack an image into the tree, by way of a container that never runs."""
        name = f"{self.lab.name}-{self.suite}"
        if engine.has("container", name):  # an earlier run was killed here
            engine.docker("rm", name)
        engine.docker("create", "--name", name, image)
        archive = self.root.with_suffix(".tar")
        engine.docker("export", "--output", str(archive), name)
        engine.docker("rm", name)
        output("tar", "-C", str(self.root), "-xf", str(archive), timeout=300)
        archive.unlink()

    def apt(self, *arguments: str) -> None:
        """Run the machine's apt-get on the tree: package scripts run inside it, downloads need nothing inside it.

        In its own mount and process namespaces: its /proc and anything that a package starts end with the command.
        """
        policy = self.root / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        script = f"mount -t proc proc '{self.root}/proc' && exec apt-get -y -q \"$@\""
        alone = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")
        env = {**os.environ, "APT_CONFIG": str(self._settings), "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        self._run(*alone, "sh", "-euc", script, "apt-get", *arguments, env=env)
        policy.unlink()

    def run_in(self, *argv: str) -> None:
        """Run a command of the tree inside the tree."""
        self._run("chroot", str(self.root), *argv, env={"PATH": "/usr/sbin:/usr/bin", "LC_ALL": "C"})

    def _run(self, *argv: str, env: Mapping[str, str]) -> None:
        """Run a command where the next `up` finds and ends it, should this one be killed."""
        run_logged(
            self.log, "sh", "-euc", f'{join_cgroup_line(self.lab, BUILDERS)}; exec "$@"', argv[0], *argv, env=env
        )

    def pack(self, archive: Path, newer: Path | None = None) -> None:
        """Write the tree into a tar file, without the package lists: they are longer than all the rest.

        With ``newer``, only what came or changed since that file was made, and all folders; what went is not told.
        """
        newer_option = [f"--newer={newer}"] if newer else []
        lists_excluded = "--exclude=./var/lib/apt/lists/*"
        output("tar", *self._tar_options(), lists_excluded, *newer_option, "-cf", str(archive), ".", timeout=300)

    def import_into(self, engine: Engine, tag: str, *changes: str) -> None:
        """Import the tree into the engine as an image, without a file in between."""
        with subprocess.Popen(["tar", *self._tar_options(), "-c", "."], stdout=subprocess.PIPE) as packing:
            options = [word for change in changes for word in ("--change", change)]
            engine.docker("import", *options, "-", tag, stdin=packing.stdout, timeout=300)
        if packing.returncode:
            raise LabError(f"tar could not read {self.root}")

    def _tar_options(self) -> list[str]:
        excluded = [f"--exclude={pattern}" for pattern in _EXCLUDED]
        return ["-C", str(self.root), "--sort=name", "--numeric-owner", "--xattrs", *excluded]
