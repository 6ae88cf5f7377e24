"""A container without an engine: the real entrypoint with the real kit, in namespaces of this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ansible_collections.backendai.cluster.plugins.module_utils._host.kit import BOUND_FILES
from ansible_collections.backendai.cluster.plugins.module_utils._model.accounts import group_text, passwd_text

UID = 1000
SECONDS = 20
"""How long anything may take that ends by itself."""

KIT = "/opt/backendai"
NAMESPACES = ("unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child")
ENTER = ("nsenter", "--mount", "--pid", "--net", "--uts", "--ipc", "--target")
BEGIN = (sys.executable, "-I", str(Path(__file__).with_name("begin.py")))
FOLDERS = (
    *("dev", "etc/profile.d", "home/work", "opt/backendai", "proc", "root", "run/backendai/apps", "run/backendai/ssh"),
    *("tmp", "usr/bin", "var/lib/backendai", "var/log/backendai"),
)
SHELL_ENVIRONMENT = {"PATH": "/bin:/usr/bin", "HOME": "/home/work"}
LOGIN = (f"{KIT}/bin/ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "main1")


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true, and fail if it is not in time."""
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, condition
        time.sleep(0.02)


@dataclasses.dataclass(frozen=True)
class Image:
    """The root folder of an image with a static busybox, and what an agent adds."""

    root: Path
    kit: Path

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file of the image or of the agent."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def prepare(self) -> None:
        """Write what every image has, and what the agent renders."""
        for folder in FOLDERS:
            (self.root / folder).mkdir(parents=True)
        (self.root / "tmp").chmod(0o1777)
        (self.root / "bin").mkdir()
        shutil.copy(self.kit / "bin/busybox", self.root / "bin")
        for name in ("cat", "sh", "sleep"):
            (self.root / "bin" / name).symlink_to("busybox")
        self.write("etc/passwd", passwd_text("", UID, UID, f"{KIT}/shell/sh"))
        self.write("etc/group", group_text("", UID, {}))
        self.write("etc/hosts", "127.0.0.1 localhost main1\n")
        for path, targets in BOUND_FILES.items():
            for target in targets:
                self.write(target, (self.kit / path).read_text())
        self._write_session(self.root / "run/backendai")
        for folder in ("home/work", "var/lib/backendai", "var/log/backendai"):
            os.chown(self.root / folder, UID, UID)

    def _write_session(self, folder: Path) -> None:
        for name in ("id_ed25519", "ssh_host_ed25519_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "ssh" / name], check=True)
        keys = {name: (folder / f"ssh/{name}.pub").read_text() for name in ("id_ed25519", "ssh_host_ed25519_key")}
        self.write("run/backendai/ssh/authorized_keys", keys["id_ed25519"])
        self.write("run/backendai/ssh/known_hosts", f"main1 {keys['ssh_host_ed25519_key']}")
        self.write("run/backendai/ssh/config", "")
        self.write("run/backendai/hostfile", "main1 slots=1\n")
        self.write("run/backendai/sshd_config", f"Include {KIT}/etc/sshd_config\n")
        for file in (folder / "ssh").iterdir():
            os.chown(file, 0, UID)
            file.chmod(0o440)
        os.mkfifo(folder / "gate")
        os.mkfifo(folder / "wake")
        os.chown(folder / "wake", 0, UID)
        (folder / "wake").chmod(0o660)

    def app(self, name: str, command: str) -> None:
        """Let the session have an app."""
        self.write(f"run/backendai/apps/{name}", command)

    def command(self, command: str) -> None:
        """Let the session run a command."""
        self.write("run/backendai/command", command)
        self.write("run/backendai/go", "")

    @contextlib.contextmanager
    def started(self, *argv: str, **environment: str) -> Iterator[Container]:
        """Run the entrypoint, which waits at the gate; kill what is left of it at the end."""
        given = json.dumps({**SHELL_ENVIRONMENT, "BACKENDAI_CLUSTER_HOST": "main1", **environment})
        words = [*NAMESPACES, str(Path(__file__).with_name("begin_container")), str(self.root), *BEGIN, str(self.root)]
        with (self.root.parent / "log").open("wb") as log:
            process = subprocess.Popen(
                [*words, given, f"{KIT}/bin/entrypoint", *argv],
                env={**os.environ, "KIT": str(self.kit)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        container = Container(self.root, process)
        try:
            wait_until(lambda: container.name == "entrypoint" or process.poll() is not None)
            yield container
        finally:
            process.kill()
            process.wait()

    @contextlib.contextmanager
    def running(self, *argv: str, **environment: str) -> Iterator[Container]:
        """Run the entrypoint until it is ready, and whatever it starts."""
        with self.started(*argv, **environment) as container:
            container.open_gate()
            wait_until(lambda: container.is_ready or container.process.poll() is not None)
            assert container.process.poll() is None, container.log
            yield container


@dataclasses.dataclass(frozen=True)
class Container:
    """A running container: its root folder and the process that holds its namespaces."""

    root: Path
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """The first process of the container, as this machine sees it; 0 if there is none."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        with contextlib.suppress(FileNotFoundError):
            return int((children.read_text().split() or ["0"])[0])
        return 0

    @property
    def name(self) -> str:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return Path(f"/proc/{self.pid}/comm").read_text().strip()
        return ""

    @property
    def log(self) -> str:
        """What the container has printed."""
        return (self.root.parent / "log").read_text()

    @property
    def is_ready(self) -> bool:
        marker = self.root / "var/lib/backendai/ready"
        return marker.exists() and bool(marker.read_text())

    def open_gate(self) -> None:
        """Do what the agent does once it has compared what the engine made."""
        with (self.root / "run/backendai/gate").open("w") as gate:
            gate.write("\n")

    def run(self, *words: str, check: bool = True, **environment: str) -> str:
        """Run a program as the engine's exec does, as the container's user, and return its output."""
        begin = [*BEGIN, str(self.root), json.dumps({**SHELL_ENVIRONMENT, **environment})]
        done = subprocess.run(
            [*ENTER, str(self.pid), "--", *begin, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert not check or done.returncode == 0, f"{done.stdout}{self.log}"
        return done.stdout

    def answer(self, *words: str) -> str:
        """Run a program as the engine's exec does, and return its standard output, whatever its exit code."""
        begin = [*BEGIN, str(self.root), json.dumps(SHELL_ENVIRONMENT)]
        command = [*ENTER, str(self.pid), "--", *begin, *words]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        return done.stdout

    def shell(self, script: str, *, check: bool = True) -> str:
        """Run a line in the image's shell."""
        return self.run("/bin/sh", "-c", script, check=check)

    def log_in(self, *words: str, check: bool = True) -> str:
        """Run a command line over SSH from the container to itself, once its sshd listens."""
        wait_until(self.listens)
        return self.run(*LOGIN, *words, check=check)

    def listens(self) -> bool:
        """Tell whether something in the container listens at the port of SSH."""
        rows = (line.split() for line in Path(f"/proc/{self.pid}/net/tcp").read_text().splitlines())
        return any(row[1].endswith(":0016") and row[3] == "0A" for row in rows)

    def processes(self) -> dict[int, Mapping[str, str]]:
        """Return the status of each process, by its number inside; the kernel says what, not the container."""
        found: dict[int, Mapping[str, str]] = {}
        space = os.stat(f"/proc/{self.pid}/ns/pid").st_ino
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.stat(folder / "ns/pid").st_ino != space:
                    continue
                lines = (line.split(":", 1) for line in (folder / "status").read_text().splitlines())
                status = {name: value.strip() for name, value in lines}
                found[int(status["NSpid"].split()[-1])] = status
        return found

    def named(self, name: str) -> list[int]:
        """Return the processes with a name, by their numbers inside."""
        return [pid for pid, status in self.processes().items() if re.fullmatch(name, status["Name"])]

    def end(self) -> int:
        """Wait for the end of the command as the agent does, and return the exit code of the container."""
        wait_until(lambda: (self.root / "var/lib/backendai/exit-code").exists() or self.process.poll() is not None)
        (self.root / "run/backendai/kept").touch()
        return self.process.wait(SECONDS)

    def stop(self) -> int:
        """Send the stop signal, and return the exit code of the container."""
        os.kill(self.pid, signal.SIGPWR)
        return self.process.wait(SECONDS)
